#!/bin/bash
# Stands in for the entrypoint of the postgres image.
set -euo pipefail

# As the real one, it is the user postgres that runs the server.
[ "$(id -u)" != 0 ] || exec setpriv --reuid=70 --regid=70 --clear-groups "$0" "$@"

from_file() {
	local name=$1 file="${1}_FILE"
	if [ -n "${!file:-}" ]; then export "$name=$(cat "${!file}")"; fi
}
from_file POSTGRES_USER
from_file POSTGRES_PASSWORD
from_file POSTGRES_DB
export POSTGRES_USER=${POSTGRES_USER:-postgres}
export POSTGRES_DB=${POSTGRES_DB:-$POSTGRES_USER}

if [ ! -s "$PGDATA/PG_VERSION" ]; then
	[ -n "${POSTGRES_PASSWORD:-}" ] || { echo "POSTGRES_PASSWORD is not set" >&2; exit 1; }
	initdb -U "$POSTGRES_USER" --pwfile=<(echo "$POSTGRES_PASSWORD") --auth-local=trust --auth-host=scram-sha-256 ${POSTGRES_INITDB_ARGS:-} >/dev/null
	# Its log tells, as that of the real one, twice that the server is ready.
	pg_ctl -w start -o "-c listen_addresses=''" >&2
	if [ "$POSTGRES_DB" != postgres ]; then
		psql -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d postgres -q -v db="$POSTGRES_DB" <<<'CREATE DATABASE :"db"'
	fi
	for script in /docker-entrypoint-initdb.d/*; do
		case $script in
		*.sh) if [ -x "$script" ]; then "$script"; else . "$script"; fi ;;
		*.sql) psql -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d "$POSTGRES_DB" -q -f "$script" ;;
		esac
	done
	pg_ctl -w stop -m fast >/dev/null
	echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
fi
exec "$@" ${1:+-c listen_addresses=*}
