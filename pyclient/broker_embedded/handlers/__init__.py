"""The APIs, one module each, with a function `handle` that `@handles` declares."""
