"""Agent state above the contract: the state's document, sessions that load and save it, the context of a call."""
