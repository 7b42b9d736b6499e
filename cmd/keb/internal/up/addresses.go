package up

import (
	"errors"
	"fmt"
	"net"
	"net/url"

	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/tlsfiles"
)

// addresses are the listening addresses of the parts, as "host:port".
type addresses struct {
	OSB       string `env:"KEB_OSB_ADDR" envDefault:"127.0.0.1:8080"`
	Operator  string `env:"KEB_OPERATOR_ADDR" envDefault:"127.0.0.1:8081"`
	Landscape string `env:"KEB_LANDSCAPE_ADDR" envDefault:"127.0.0.1:8090"`
	// NATSURL is the URL of the bus for workers in other processes. NATS is its address.
	NATSURL string `env:"KEB_NATS_URL" envDefault:"nats://127.0.0.1:4222"`
	NATS    string
	// TLS is the certificate of OSB and Operator.
	TLS tlsfiles.Server `envPrefix:"KEB_TLS_"`
}

// Flags with their variables, for error messages.
const (
	osbFlag       = "--osb-addr (KEB_OSB_ADDR)"
	operatorFlag  = "--operator-addr (KEB_OPERATOR_ADDR)"
	landscapeFlag = "--landscape-addr (KEB_LANDSCAPE_ADDR)"
	natsFlag      = "--nats-addr (KEB_NATS_URL)"
)

// addresses reads the listening addresses. Only loopback addresses are allowed, because user and password are public.
func (c Config) addresses() (addresses, error) {
	var a addresses
	if err := service.LoadEnvFrom(&a, c.Environment, nil); err != nil {
		return a, err
	}
	bus, err := url.Parse(a.NATSURL)
	if err != nil || bus.Scheme != "nats" || bus.User != nil || bus.Path != "" {
		return a, fmt.Errorf("%s: want one address such as nats://127.0.0.1:4222 for the NATS of keb up to listen on", natsFlag)
	}
	a.NATS = bus.Host
	var problems []error
	used := map[string]string{}
	for _, l := range []struct{ flag, addr string }{
		{osbFlag, a.OSB}, {operatorFlag, a.Operator}, {landscapeFlag, a.Landscape}, {natsFlag, a.NATS},
	} {
		host, port, err := net.SplitHostPort(l.addr)
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("%s: %q is not host:port", l.flag, l.addr))
		case !loopback(host):
			problems = append(problems, fmt.Errorf("%s: %q is not a loopback address; keb up runs on one machine only, write for example 127.0.0.1:%s", l.flag, l.addr, port))
		case port != "0" && used[l.addr] != "":
			problems = append(problems, fmt.Errorf("%s: %s is already the address of %s", l.flag, l.addr, used[l.addr]))
		}
		used[l.addr] = l.flag
	}
	return a, errors.Join(problems...)
}

// places returns the URLs of the parts at these addresses, for services with a keyring. Without a keyring, an unused key takes its
// place.
func (a addresses) places(keys string) places {
	scheme := "http://"
	if a.TLS.Enabled() {
		scheme = "https://"
	}
	return places{osb: scheme + a.OSB, operator: scheme + a.Operator, landscape: "http://" + a.Landscape, keys: keys}
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
