package postgres

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

const (
	wantURL     = "want postgres://user:password@host:port/database"
	defaultPort = "5432"
	// sessionAttrs is the parameter of the URL that selects servers by what their sessions can do.
	sessionAttrs = "target_session_attrs"
)

// parseURL parses a database URL. Unlike url.Parse, it accepts several hosts as libpq does, "host1:port1,host2:port2", and returns them as
// the parameters host and port, which are the only ones that the driver understands. No error contains the password.
func parseURL(raw string) (*url.URL, error) {
	before, after, found := strings.Cut(raw, "://")
	authority := after
	if end := strings.IndexAny(after, "/?#"); end >= 0 {
		authority = after[:end]
	}
	at := strings.LastIndexByte(authority, '@') + 1
	list := authority[at:]
	if !found || !strings.Contains(list, ",") {
		u, err := url.Parse(raw)
		if err != nil {
			// The errors of url.Parse contain its input, including the password.
			return nil, errors.New("the database URL cannot be parsed; " + wantURL)
		}
		return u, nil
	}
	u, err := url.Parse(before + "://" + authority[:at] + after[len(authority):])
	if err != nil {
		return nil, errors.New("the database URL cannot be parsed; " + wantURL)
	}
	query := u.Query()
	if query.Has("host") || query.Has("port") {
		return nil, errors.New("the database URL has hosts and also the parameter host or port; leave the parameter out")
	}
	var hosts, ports []string
	for item := range strings.SplitSeq(list, ",") {
		// A port of its own is added where there is none, so that all hosts can be split in the same way.
		host, port, err := net.SplitHostPort(item)
		if err != nil {
			host, port, err = net.SplitHostPort(item + ":" + defaultPort)
		}
		if err != nil || host == "" || port == "" || strings.Trim(port, "0123456789") != "" {
			return nil, fmt.Errorf("the database URL has host %q; want host:port,host:port", item)
		}
		hosts, ports = append(hosts, host), append(ports, port)
	}
	query.Set("host", strings.Join(hosts, ","))
	query.Set("port", strings.Join(ports, ","))
	u.RawQuery = query.Encode()
	return u, nil
}

// hostNames returns the hosts of a parsed database URL without their ports. Without a host there is one empty name.
func hostNames(u *url.URL) []string {
	if list := u.Query().Get("host"); list != "" {
		return strings.Split(list, ",")
	}
	return []string{u.Hostname()}
}

// setSessionAttrs selects servers that accept writes. It reports whether the URL describes a server with a standby.
func setSessionAttrs(u *url.URL, query url.Values) (standby bool, err error) {
	switch v := query.Get(sessionAttrs); v {
	case "":
		query.Set(sessionAttrs, "read-write")
		return len(hostNames(u)) > 1, nil
	case "read-write", "primary":
		return true, nil
	default:
		return false, fmt.Errorf("the database URL has %s=%s; want read-write or primary, because every service writes", sessionAttrs, v)
	}
}
