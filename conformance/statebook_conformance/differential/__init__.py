"""One random history on several backends and on a model: the first answer that differs, made as short as it can be."""
