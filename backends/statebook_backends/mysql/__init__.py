"""The backend for MySQL and MariaDB: `mysql://user:password@host:port/database`."""
