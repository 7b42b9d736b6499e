package bus

import (
	"errors"
	"net"
	"net/url"
	"strings"
)

// redact takes the password out of an address or a list of addresses.
func redact(urls string) string {
	parts := strings.Split(urls, ",")
	for i, p := range parts {
		if !strings.Contains(p, "@") {
			continue
		}
		u, err := url.Parse(strings.TrimSpace(p))
		if err != nil {
			// Not an address; whatever stands before the @ may be a password.
			parts[i] = "xxxxx" + p[strings.LastIndex(p, "@"):]
			continue
		}
		parts[i] = u.Redacted()
	}
	return strings.Join(parts, ",")
}

func isNetError(err error) bool {
	_, ok := errors.AsType[net.Error](err)
	return ok
}
