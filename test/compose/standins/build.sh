#!/bin/bash
# Makes images that stand in for those of docker-compose.yml and of the Dockerfile where no registry can be reached, from programs of
# this machine (Debian's postgresql and prometheus packages, Go) and from the Go module proxy (nats-server). It is for tests.
#
#   build.sh NAME...     golang, postgres, nats, prometheus; without names all of them
#
# The Go image gets the module and build caches named by STANDIN_GOMODCACHE and STANDIN_GOCACHE, if set, so that images are
# built without downloading.
set -euo pipefail
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
here=$(cd "$(dirname "$0")" && pwd)

# put ROOT PROGRAM... copies programs with the libraries that they load.
put() {
	local root=$1 program library
	shift
	for program in "$@"; do
		mkdir -p "$root$(dirname "$program")"
		cp -L "$program" "$root$program"
		{ ldd "$program" 2>/dev/null || true; } | grep -o '/[^ ]*' | sort -u | while read -r library; do
			mkdir -p "$root$(dirname "$library")"
			cp -nL "$library" "$root$library" || true
		done
	done
}

# base ROOT gives a shell with what scripts need.
base() {
	local root=$1 name
	mkdir -p "$root/tmp" "$root/etc/ssl/certs" "$root/bin" "$root/var"
	chmod 1777 "$root/tmp"
	put "$root" /bin/bash /usr/bin/wget
	for name in cat chmod cp cut date env grep head id ls mkdir mv rm sed sleep sort tail tr wc; do
		put "$root" "$(command -v "$name")"
	done
	cp -L /bin/bash "$root/bin/sh"
	printf 'root:x:0:0::/:/bin/sh\npostgres:x:70:70::/var/lib/postgresql:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' >"$root/etc/passwd"
	printf 'root:x:0:\npostgres:x:70:\nnobody:x:65534:\n' >"$root/etc/group"
	echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
	cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
}

import() { # ROOT IMAGE CHANGE...
	local root=$1 image=$2 change changes=()
	shift 2
	for change in "$@"; do changes+=(-c "$change"); done
	tar -C "$root" -c . | docker import "${changes[@]}" - "$image" >/dev/null
	echo "$image"
}

golang() {
	local root=$work/golang
	base "$root"
	mkdir -p "$root/usr/local" "$root/go/pkg" "$root/root/.cache"
	cp -r "$(go env GOROOT)" "$root/usr/local/go"
	rm -rf "$root/usr/local/go/test" "$root/usr/local/go/api" "$root/usr/local/go/doc"
	[ -z "${STANDIN_GOMODCACHE:-}" ] || cp -r "$STANDIN_GOMODCACHE" "$root/go/pkg/mod"
	[ -z "${STANDIN_GOCACHE:-}" ] || cp -r "$STANDIN_GOCACHE" "$root/root/.cache/go-build"
	import "$root" golang:1.26 'ENV PATH=/usr/local/go/bin:/bin:/usr/bin GOPATH=/go HOME=/root' "ENV GOPROXY=$(go env GOPROXY)"
}

# The entrypoint is made after the documentation of the real image: POSTGRES_USER, _PASSWORD, _DB, each also as _FILE, and the scripts
# of /docker-entrypoint-initdb.d.
postgres() {
	local root=$work/postgres bin
	bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
	base "$root"
	put "$root" "$bin"/{postgres,initdb,pg_ctl,psql,pg_isready} "$(command -v setpriv)"
	mkdir -p "$root/usr/share/postgresql" "$root/usr/share" "$root/usr/lib/postgresql" "$root/usr/local/bin" "$root/docker-entrypoint-initdb.d"
	cp -r "/usr/share/postgresql/$(basename "$(dirname "$bin")")" "$root/usr/share/postgresql/"
	cp -r "$(dirname "$bin")/lib" "$root$(dirname "$bin")/"
	# Without it Postgres does not compile queries, and needs no LLVM.
	rm -f "$root$(dirname "$bin")/lib/llvmjit.so"
	cp -r /usr/share/zoneinfo "$root/usr/share/"
	cp "$here/postgres-entrypoint.sh" "$root/usr/local/bin/docker-entrypoint.sh"
	chmod 0755 "$root/usr/local/bin/docker-entrypoint.sh"
	mkdir -p "$root/var/lib/postgresql/data" "$root/var/run/postgresql"
	ln -s /var/run "$root/run"
	chown -R 70:70 "$root/var/lib/postgresql" "$root/var/run/postgresql"
	chmod 1777 "$root/var/lib/postgresql/data" "$root/var/run/postgresql"
	import "$root" postgres:17-alpine "ENV PATH=$bin:/usr/local/bin:/bin:/usr/bin PGDATA=/var/lib/postgresql/data LANG=C" \
		'ENTRYPOINT ["docker-entrypoint.sh"]' 'CMD ["postgres"]' 'EXPOSE 5432' 'VOLUME /var/lib/postgresql/data'
	# As the real image, and what an import cannot say: with SIGTERM Postgres would wait until all its clients have gone.
	printf 'FROM postgres:17-alpine\nSTOPSIGNAL SIGINT\n' | docker build --quiet --tag postgres:17-alpine - >/dev/null 2>&1
}

nats() {
	local root=$work/nats
	base "$root"
	(cd "$here/../../.." && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$root/nats-server" github.com/nats-io/nats-server/v2)
	import "$root" nats:2.12-alpine 'ENV PATH=/bin:/usr/bin' 'ENTRYPOINT ["/nats-server"]' 'EXPOSE 4222 8222 6222'
}

prometheus() {
	local root=$work/prometheus
	base "$root"
	put "$root" /usr/bin/prometheus /usr/bin/promtool
	mkdir -p "$root/bin" "$root/prometheus" "$root/etc/prometheus"
	mv "$root/usr/bin/prometheus" "$root/usr/bin/promtool" "$root/bin/"
	chown 65534:65534 "$root/prometheus"
	import "$root" prom/prometheus:v3.5.0 'ENV PATH=/bin:/usr/bin' 'USER 65534' 'WORKDIR /prometheus' 'ENTRYPOINT ["/bin/prometheus"]' 'EXPOSE 9090'
}

[ $# -gt 0 ] || set -- golang postgres nats prometheus
for name in "$@"; do
	case $name in
	golang | postgres | nats | prometheus) "$name" ;;
	*)
		echo "$name: there are golang, postgres, nats, prometheus" >&2
		exit 2
		;;
	esac
done
