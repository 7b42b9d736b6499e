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

// tlsPrefix is that of the variables whose files Config.TLS names.
const tlsPrefix = "KEB_NATS_"

// security is what makes a connection speak TLS. The files are read for each connection.
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

// explain says which variable to look at.
func explain(c Config, err error) error {
	if errors.Is(err, nats.ErrSecureConnWanted) {
		return fmt.Errorf("%w: give it a certificate, or leave out KEB_NATS_CA_FILE, KEB_NATS_CERT_FILE, KEB_NATS_TLS_FIRST and tls://", err)
	}
	return c.TLS.Explain(tlsPrefix, err)
}

// pause is how long to wait before the next attempt to come back, after all servers have been tried. It logs why TLS keeps the
// connection away, each reason once: the client of NATS keeps that to itself.
func (b *Bus) pause() func(int) time.Duration {
	last := "" // only the goroutine that connects again asks
	return func(attempt int) time.Duration {
		if attempt == 1 {
			last = ""
		}
		if nc := b.live.Load(); nc != nil {
			if err := nc.LastError(); tlsfiles.IsTLS(err) || errors.Is(err, nats.ErrSecureConnWanted) {
				if why := explain(b.cfg, err); why.Error() != last {
					last = why.Error()
					b.log.Error("bus does not take us back", "err", why)
				}
			}
		}
		return reconnectWait + rand.N(reconnectWait)
	}
}
