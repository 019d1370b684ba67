#!/bin/sh
# Creates Temporal's two databases, or brings their tables to this image's version. Safe to repeat.
# temporal-sql-tool reads SQL_PLUGIN, SQL_HOST, SQL_PORT, SQL_USER and SQL_PASSWORD.
set -eu

for database in temporal temporal_visibility; do
  versions="/etc/temporal/schema/postgresql/v12/${database#temporal_}/versioned"
  temporal-sql-tool --db "$database" create
  temporal-sql-tool --db "$database" setup-schema -v 0.0
  temporal-sql-tool --db "$database" update-schema -d "$versions"
done
