package bus

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// redact removes the passwords from a list of addresses.
func redact(urls string) string {
	parts := strings.Split(urls, ",")
	for i, p := range parts {
		if !strings.Contains(p, "@") {
			continue
		}
		u, err := url.Parse(strings.TrimSpace(p))
		if err != nil {
			// This is not an address; the text before the @ may be a password.
			parts[i] = "xxxxx" + p[strings.LastIndex(p, "@"):]
			continue
		}
		parts[i] = u.Redacted()
	}
	return strings.Join(parts, ",")
}

// checkURLs rejects invalid addresses. Its errors contain no password.
func checkURLs(urls string) error {
	for p := range strings.SplitSeq(urls, ",") {
		p = strings.TrimSpace(p)
		if !strings.Contains(p, "://") {
			p = "nats://" + p
		}
		if u, err := url.Parse(p); err != nil || u.Hostname() == "" {
			return fmt.Errorf("URL %q: want for example nats://127.0.0.1:4222", redact(p))
		}
	}
	return nil
}

func isNetError(err error) bool {
	_, ok := errors.AsType[net.Error](err)
	return ok
}
