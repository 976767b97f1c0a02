"""What a certification leaves behind for others: JUnit, CTRF, badges, a page, the matrix of all certificates."""
