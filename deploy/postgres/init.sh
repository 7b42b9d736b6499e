#!/bin/bash
# Makes the users of broker and orchestrator when the database is new. Each makes a schema of its own, which the other cannot read.
# It is mounted into /docker-entrypoint-initdb.d; the passwords are files in the folder that the init container fills.
set -euo pipefail

psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --quiet \
	-v db="$POSTGRES_DB" \
	-v broker="$(cat /run/keb/broker-password)" \
	-v orchestrator="$(cat /run/keb/orchestrator-password)" <<'SQL'
CREATE ROLE broker LOGIN PASSWORD :'broker';
CREATE ROLE orchestrator LOGIN PASSWORD :'orchestrator';
REVOKE ALL ON DATABASE :"db" FROM PUBLIC;
GRANT CONNECT, CREATE, TEMPORARY ON DATABASE :"db" TO broker, orchestrator;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
SQL
