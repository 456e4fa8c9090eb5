"""The programs under test, one package each. They run from the repository: ``python -m product.collector``."""
