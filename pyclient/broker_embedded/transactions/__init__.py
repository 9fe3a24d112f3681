"""The transaction coordinator: its state machine, its records in `__transaction_state`, markers, and verification."""
