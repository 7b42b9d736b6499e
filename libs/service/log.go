package service

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Logger returns a logger that writes to w. format is "json", "text", or empty for json; level is "debug", "info", "warn",
// "error", or empty for info.
func Logger(w io.Writer, format, level string) (*slog.Logger, error) {
	opts := &slog.HandlerOptions{}
	if level != "" {
		var l slog.Level
		// At a level below debug, such as "debug-4", libraries would log their requests, including secrets.
		if err := l.UnmarshalText([]byte(level)); err != nil || strings.ContainsAny(level, "+-") {
			return nil, fmt.Errorf("log level %q: want debug, info, warn or error", level)
		}
		opts.Level = l
	}
	switch format {
	case "json", "":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	}
	return nil, fmt.Errorf("log format %q: want json or text", format)
}
