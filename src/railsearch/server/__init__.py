"""The HTTP server: searches of index folders for programs in any language, and a page for people."""
