"""`file://`: heads and blobs as files below one directory, each readable as JSON text without statebook."""
