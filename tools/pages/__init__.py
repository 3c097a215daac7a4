"""Pages of the documentation that are generated: nobody edits them, and a wrong one fails a test."""
