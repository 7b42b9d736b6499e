package pglocal

import (
	"context"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// commonSettings exclude statements and their values from the server's log, because they can contain secrets.
var commonSettings = map[string]string{
	"listen_addresses":        "127.0.0.1",
	"max_connections":         "100",
	"timezone":                "UTC",
	"log_timezone":            "UTC",
	"logging_collector":       "off",
	"log_destination":         "stderr",
	"log_min_error_statement": "panic",
	"log_error_verbosity":     "terse",
	"lc_messages":             "C",
}

// durableSettings make commits share flushes, and checkpoints rare (docs/contracts/nats.md#postgres).
var durableSettings = map[string]string{
	"fsync":                        "on",
	"synchronous_commit":           "on",
	"full_page_writes":             "on",
	"shared_buffers":               "256MB",
	"max_wal_size":                 "4GB",
	"checkpoint_timeout":           "15min",
	"checkpoint_completion_target": "0.9",
	"wal_compression":              "on",
}

// throwawaySettings are for temporary data.
var throwawaySettings = map[string]string{
	"fsync":              "off",
	"synchronous_commit": "off",
	"full_page_writes":   "off",
	"shared_buffers":     "64MB",
	"max_wal_size":       "256MB",
	"autovacuum":         "off",
	"max_connections":    "300",
}

func (s *Server) arguments(ctx context.Context, cfg Config) []string {
	settings := maps.Clone(commonSettings)
	if cfg.Durable {
		maps.Copy(settings, durableSettings)
		for name, value := range map[string]string{"wal_compression": "lz4", "wal_sync_method": "fdatasync"} {
			if s.supports(ctx, name, value) {
				settings[name] = value
			}
		}
	} else {
		maps.Copy(settings, throwawaySettings)
	}
	settings["port"] = strconv.Itoa(s.port)
	settings["unix_socket_directories"] = ""
	maps.Copy(settings, cfg.Settings)

	args := []string{"-D", s.dir, "-c", clusterName}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// supports reports whether the server binary accepts a value: builds differ.
func (s *Server) supports(ctx context.Context, name, value string) bool {
	out, err := s.id.command(ctx, s.program("postgres"), "-D", s.dir, "-c", name+"="+value, "-C", name).Output()
	return err == nil && strings.TrimSpace(string(out)) == value
}

// environment returns the current environment without the variables that redirect the server's programs.
func environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "PG") || strings.HasPrefix(kv, "LC_") || strings.HasPrefix(kv, "LANG")
	})
	return append(env, "LC_ALL=C")
}
