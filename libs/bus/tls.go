package bus

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/keb/libs/tlsfiles"
)

// tlsPrefix is the prefix of the variables for the files of Config.TLS.
const tlsPrefix = "KEB_NATS_"

// security returns the TLS options of a connection. The files are read for each connection.
func (c Config) security() []nats.Option {
	var opts []nats.Option
	if c.TLS.Enabled() {
		opts = append(opts, nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12, GetClientCertificate: c.shown}), nats.ClientTLSConfig(nil, c.roots))
	}
	if c.TLSFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	return opts
}

func (c Config) shown(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	cfg, err := c.TLS.Config(tlsPrefix)
	if err != nil {
		return nil, err
	}
	if cfg.GetClientCertificate == nil {
		return &tls.Certificate{}, nil // none
	}
	return cfg.GetClientCertificate(info)
}

func (c Config) roots() (*x509.CertPool, error) {
	cfg, err := c.TLS.Config(tlsPrefix)
	if err != nil {
		return nil, err
	}
	return cfg.RootCAs, nil
}

// explain adds the names of the relevant variables to a connection error.
func explain(c Config, err error) error {
	if errors.Is(err, nats.ErrSecureConnWanted) {
		return fmt.Errorf("%w: give it a certificate, or leave out KEB_NATS_CA_FILE, KEB_NATS_CERT_FILE, KEB_NATS_TLS_FIRST and tls://", err)
	}
	return c.TLS.Explain(tlsPrefix, err)
}

// pause returns the delay before the next reconnect, after all servers were tried. It logs each TLS error once, because the NATS client
// does not report it.
func (b *Bus) pause() func(int) time.Duration {
	last := "" // only the reconnecting goroutine calls it
	return func(attempt int) time.Duration {
		if attempt == 1 {
			last = ""
		}
		if nc := b.live.Load(); nc != nil {
			if err := nc.LastError(); tlsfiles.IsTLS(err) || errors.Is(err, nats.ErrSecureConnWanted) {
				if why := explain(b.cfg, err); why.Error() != last {
					last = why.Error()
					b.log.Error("reconnect to the bus failed", "err", why)
				}
			}
		}
		return reconnectWait + rand.N(reconnectWait)
	}
}
