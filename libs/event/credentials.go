package event

import (
	"net/url"
	"strings"
	"unicode"
)

// ServiceManagerCredentials are the members of sm_operator_credentials, a secret (docs/contracts/btp.md#credentials).
type ServiceManagerCredentials struct {
	ClientID     string `json:"clientid"`
	ClientSecret string `json:"clientsecret"`
	SMURL        string `json:"sm_url"`
	URL          string `json:"url"`
	XSAppName    string `json:"xsappname"`
}

// String keeps the credentials out of logs and errors.
func (ServiceManagerCredentials) String() string { return "[redacted]" }

// Validate rejects credentials that the BTP manager would reject in the runtime, where the operator cannot see the error. It returns a
// *FieldError with the names of all missing and invalid members, without their values.
func (c ServiceManagerCredentials) Validate() error {
	var missing, problems []string
	for _, m := range []struct {
		name, value string
		address     bool
	}{
		{"clientid", c.ClientID, false},
		{"clientsecret", c.ClientSecret, false},
		{"sm_url", c.SMURL, true},
		{"url", c.URL, true},
	} {
		switch {
		case strings.TrimSpace(m.value) == "":
			missing = append(missing, m.name)
		case strings.TrimSpace(m.value) != m.value || strings.ContainsFunc(m.value, unicode.IsControl):
			problems = append(problems, m.name+" has white space around it or control characters")
		case m.address && !isAddress(m.value):
			problems = append(problems, m.name+" is not an http or https URL without credentials, query and fragment")
		}
	}
	if len(missing) > 0 {
		problems = append([]string{"missing " + strings.Join(missing, ", ")}, problems...)
	}
	if len(problems) == 0 {
		return nil
	}
	return &FieldError{Field: CredentialsServiceManager, Problem: strings.Join(problems, "; ")}
}

func isAddress(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil && !strings.ContainsAny(text, "?#")
}
