"""The one way to have children: processes that never outlive the one that started them, nor leave anything behind."""
