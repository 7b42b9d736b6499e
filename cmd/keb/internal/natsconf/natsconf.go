// Package natsconf writes the configuration of the NATS server: its users, and what each may do.
package natsconf

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/kyma-project/keb/libs/event"
)

// FromEnvironment lets the server read each password from its event.PasswordVariable when it starts. The passwords must begin with a letter:
// the server takes what begins with a digit for a number.
func FromEnvironment(user string) (string, error) { return "$" + event.PasswordVariable(user), nil }

// Config says what is written.
type Config struct {
	// Workers are the names of the workers.
	Workers []string
	// Password is how the password of a user is written: a bcrypt hash in quotes, or a variable.
	Password func(user string) (string, error)
	// UsersOnly leaves everything out but the block "accounts", for a server that is configured elsewhere.
	UsersOnly bool
	// TLS gives the server a certificate. The zero value has none.
	TLS TLS
}

// TLS names files on the machine of the server.
type TLS struct {
	// CertFile and KeyFile are the certificate of the server and its key.
	CertFile, KeyFile string
	// ClientCAFile is the authority of the clients, which must then show a certificate of it.
	ClientCAFile string
	// First begins with TLS; clients need KEB_NATS_TLS_FIRST.
	First bool
}

func (t TLS) check() error {
	switch {
	case (t.CertFile == "") != (t.KeyFile == ""):
		return errors.New("--tls-cert and --tls-key: name both or neither")
	case t.CertFile == "" && (t.ClientCAFile != "" || t.First):
		return errors.New("--tls-client-ca and --tls-first: mean nothing without --tls-cert and --tls-key")
	}
	return nil
}

func (t TLS) render(out *bytes.Buffer) {
	if t.CertFile == "" {
		return
	}
	fmt.Fprintf(out, "tls {\n  cert_file: %q\n  key_file: %q\n", t.CertFile, t.KeyFile)
	if t.ClientCAFile != "" {
		fmt.Fprintf(out, "  # Clients show a certificate of this authority.\n  ca_file: %q\n  verify: true\n", t.ClientCAFile)
	}
	if t.First {
		out.WriteString("  handshake_first: true\n")
	}
	out.WriteString("  # After a restart everybody comes back at once.\n  timeout: 10\n}\n\n")
}

const server = `server_name: keb
listen: "0.0.0.0:4222"
# Health and figures of the server, without a password: not for the outside.
http: "0.0.0.0:8222"

jetstream {
  store_dir: /data
  # Stage memory only; the streams are in files.
  max_memory_store: 256MB
  max_file_store: 8GB
}

`

// Render is the configuration.
func Render(cfg Config) ([]byte, error) {
	if err := cfg.TLS.check(); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString("# Made by keb nats config from libs/event/permissions.go. Make it anew instead of changing it.\n\n")
	if !cfg.UsersOnly {
		out.WriteString(server)
		cfg.TLS.render(&out)
	}
	users := event.Users(cfg.Workers...)
	grants := event.Grants(users)
	out.WriteString("# What is not allowed is refused. Accounts see nothing of each other but what they export and import.\naccounts {\n")
	for _, user := range users {
		password, err := cfg.Password(user.Name)
		if err != nil {
			return nil, fmt.Errorf("password of user %s: %w", user.Name, err)
		}
		account(&out, user, password, grants)
	}
	out.WriteString("}\n")
	return out.Bytes(), nil
}

func account(out *bytes.Buffer, user event.User, password string, grants []event.Grant) {
	name := event.AccountOf(user.Name)
	fmt.Fprintf(out, "  %q: {\n", name)
	if name == event.AccountBus {
		out.WriteString("    jetstream: enabled\n")
	}
	fmt.Fprintf(out, "    users: [{\n      user: %q\n      password: %s\n      permissions {\n", user.Name, password)
	list(out, "publish", user.Publish)
	list(out, "subscribe", user.Subscribe)
	if user.Answers {
		fmt.Fprintf(out, "        allow_responses: {max: 1, expires: %q}\n", event.AnswerTime)
	}
	out.WriteString("      }\n    }]\n")
	out.WriteString("    exports: [\n")
	for _, g := range grants {
		switch {
		case g.From != name:
		case g.Facts:
			fmt.Fprintf(out, "      {stream: %q, accounts: [%q]}\n", g.Subject, g.To)
		case g.Many:
			fmt.Fprintf(out, "      {service: %q, response_type: stream, accounts: [%q]}\n", g.Subject, g.To)
		default:
			fmt.Fprintf(out, "      {service: %q, accounts: [%q]}\n", g.Subject, g.To)
		}
	}
	out.WriteString("    ]\n    imports: [\n")
	for _, g := range grants {
		kind := "service"
		if g.Facts {
			kind = "stream"
		}
		if g.To == name {
			fmt.Fprintf(out, "      {%s: {account: %q, subject: %q}}\n", kind, g.From, g.Subject)
		}
	}
	out.WriteString("    ]\n  }\n")
}

func list(out *bytes.Buffer, verb string, subjects []string) {
	fmt.Fprintf(out, "        %s: {allow: [\n", verb)
	for _, subject := range subjects {
		fmt.Fprintf(out, "          %q\n", subject)
	}
	out.WriteString("        ]}\n")
}
