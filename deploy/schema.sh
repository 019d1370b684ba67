#!/bin/sh
# Creates Temporal's two databases, or brings their tables to this tool's version, which holds them. Safe to repeat.
# temporal-sql-tool reads SQL_PLUGIN, SQL_HOST, SQL_PORT, SQL_USER and SQL_PASSWORD.
set -eu

for database in temporal temporal_visibility; do
  temporal-sql-tool --db "$database" create
  temporal-sql-tool --db "$database" setup-schema -v 0.0
  temporal-sql-tool --db "$database" update-schema --schema-name "postgresql/v12/${database#temporal_}"
done
