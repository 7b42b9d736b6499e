// Package webhook sends facts about operations and orchestrations to receivers over HTTP, as signed CloudEvents or as messages for
// Slack. A fact is stored for each webhook that it matches, and then sent until the receiver accepts it, so a restart loses nothing.
package webhook

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// Format is the form of a delivery.
type Format string

// The formats. CloudEvents is structured mode: the body contains the whole event.
const (
	CloudEvents       Format = "cloudevents"
	CloudEventsBinary Format = "cloudevents-binary"
	Slack             Format = "slack"
)

// Formats returns all formats.
func Formats() []Format { return []Format{CloudEvents, CloudEventsBinary, Slack} }

// Kind is what an event reports.
type Kind string

// The kinds. A failed try of a step is Failing, and every try is Step. A success with steps that were not completed is Succeeded and
// Incomplete.
const (
	Started       Kind = "started"
	Failing       Kind = "failing"
	Failed        Kind = "failed"
	Incomplete    Kind = "incomplete"
	Succeeded     Kind = "succeeded"
	Cancelled     Kind = "cancelled"
	Step          Kind = "step"
	Stage         Kind = "stage"
	Orchestration Kind = "orchestration"
	// Test is the kind of a test delivery. No filter has it.
	Test Kind = "test"
)

// Kinds returns the kinds that a filter may have.
func Kinds() []Kind {
	return []Kind{Started, Failing, Failed, Incomplete, Succeeded, Cancelled, Step, Stage, Orchestration}
}

// DefaultKinds returns the kinds of a filter without any.
func DefaultKinds() []Kind { return []Kind{Failing, Failed, Orchestration} }

// State is the state of a webhook.
type State string

// The states. A disabled webhook gets no events.
const (
	Active   State = "active"
	Disabled State = "disabled"
)

const (
	// Max is the maximum number of webhooks.
	Max = 50
	// maxValues is the maximum number of values of one member of a filter.
	maxValues = 100
	maxURL    = 2048
)

var (
	// ErrTooMany means that there are Max webhooks.
	ErrTooMany = fmt.Errorf("there are %d webhooks already; delete some of them", Max)
	// ErrNameTaken means that another webhook has the name.
	ErrNameTaken = errors.New("another webhook has this name")
)

// Filter selects events. An empty list selects all, except of kinds, where it selects DefaultKinds. An orchestration has only a type.
type Filter struct {
	Kinds          []Kind                `json:"kinds,omitempty"`
	Types          []event.OperationType `json:"types,omitempty"`
	Plans          []string              `json:"plans,omitempty"`
	GlobalAccounts []string              `json:"globalAccounts,omitempty"`
}

// Webhook is a receiver of events.
type Webhook struct {
	ID     string
	Name   string
	Format Format
	Filter Filter
	// Origin is the scheme and the host of the URL, and Sealed its Target.
	Origin, Sealed string
	CreatedBy      string
	CreatedAt      time.Time
	State          State
	// ActiveSince is when the webhook was created or last enabled.
	ActiveSince time.Time
	// Reason is why the webhook is disabled.
	Reason string
	// Failures is the number of failed attempts since the last success, FailingSince the time of the first, and Error the last error.
	Failures     int
	FailingSince time.Time
	Error        string
	// DeliveredAt is the time of the last success; zero if there is none.
	DeliveredAt time.Time
	// DueAt is when the next attempt is due.
	DueAt time.Time
	// Waiting is the number of events that wait, up to MaxWaiting + 1. Only some queries set it.
	Waiting int
}

// Target is the secret part of a webhook. It is only stored sealed.
type Target struct {
	URL string `json:"url"`
	// Secret signs deliveries: "whsec_" and base64.
	Secret string `json:"secret"`
}

// associated binds a sealed target to its webhook.
func associated(id string) []byte { return []byte("webhook/" + id) }

var nameSyntax = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// Validate reports the first invalid member of an order.
func (w *Webhook) Validate() error {
	if !nameSyntax.MatchString(w.Name) {
		return fmt.Errorf("name %.80q: must have 1 to 63 lower-case letters, digits and hyphens, with a letter or digit at both ends", w.Name)
	}
	if !slices.Contains(Formats(), w.Format) {
		return fmt.Errorf("format %.50q: allowed are %s", w.Format, list(Formats()))
	}
	return w.Filter.validate()
}

func (f *Filter) validate() error {
	for _, k := range f.Kinds {
		if !slices.Contains(Kinds(), k) {
			return fmt.Errorf("filter.kinds: %.50q: allowed are %s", k, list(Kinds()))
		}
	}
	for _, t := range f.Types {
		if !slices.Contains(event.OperationTypes(), t) {
			return fmt.Errorf("filter.types: %.50q: allowed are %s", t, list(event.OperationTypes()))
		}
	}
	for name, values := range map[string][]string{"plans": f.Plans, "globalAccounts": f.GlobalAccounts} {
		if len(values) > maxValues {
			return fmt.Errorf("filter.%s: has %d values: at most %d are allowed", name, len(values), maxValues)
		}
		if slices.Contains(values, "") {
			return fmt.Errorf("filter.%s: a value is empty", name)
		}
	}
	return nil
}

func list[T ~string](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return strings.Join(texts, ", ")
}

// kinds returns the selected kinds.
func (f *Filter) kinds() []Kind {
	if len(f.Kinds) == 0 {
		return DefaultKinds()
	}
	return f.Kinds
}

// selects returns the kind under which the filter selects an event of some kinds and a type, and false if it selects it under none.
func (f *Filter) selects(kinds []Kind, t event.OperationType) (Kind, bool) {
	if len(f.Types) > 0 && !slices.Contains(f.Types, t) {
		return "", false
	}
	for _, k := range kinds {
		if slices.Contains(f.kinds(), k) {
			return k, true
		}
	}
	return "", false
}

// selectsAbout reports whether the filter selects an operation by its plan and account.
func (f *Filter) selectsAbout(a *About) bool {
	return (len(f.Plans) == 0 || slices.Contains(f.Plans, a.Plan) || slices.Contains(f.Plans, a.PlanID)) &&
		(len(f.GlobalAccounts) == 0 || slices.Contains(f.GlobalAccounts, a.GlobalAccount))
}

// factTypes are the types of the facts that have a kind.
var factTypes = map[Kind]event.Type{
	Started: event.TypeOperationStarted, Failing: event.TypeStepFinished, Failed: event.TypeOperationFailed,
	Incomplete: event.TypeOperationSucceeded, Succeeded: event.TypeOperationSucceeded, Cancelled: event.TypeOperationCancelled,
	Step: event.TypeStepFinished, Stage: event.TypeStageFinished,
}

// subjects returns the sorted subjects of the facts that webhooks need.
func subjects(webhooks []Webhook) []string {
	var found []string
	for i := range webhooks {
		f := &webhooks[i].Filter
		types := f.Types
		if len(types) == 0 {
			types = []event.OperationType{"*"}
		}
		for _, k := range f.kinds() {
			for _, t := range types {
				if fact, ok := factTypes[k]; ok {
					found = append(found, event.FactSubject(t, fact))
				}
			}
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	// The bus rejects overlapping filters.
	return slices.DeleteFunc(found, func(s string) bool {
		tokens := strings.Split(s, ".")
		return tokens[2] != "*" && slices.Contains(found, "keb.fact.*."+tokens[3])
	})
}

// CheckURL returns an error unless a URL may be the target of a webhook. Only a test or a local system allows loopback addresses, and
// http for them.
func CheckURL(raw string, allowLocal bool) error {
	const want = "must be an https URL such as https://example.org/keb, without user and fragment"
	u, err := url.Parse(raw)
	// The URL may contain credentials, so no error contains it.
	switch {
	case len(raw) > maxURL:
		return fmt.Errorf("url: has %d characters: at most %d are allowed", len(raw), maxURL)
	case err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" || u.Opaque != "":
		return errors.New("url: " + want)
	case u.Scheme == "http" && allowLocal && isLocal(u.Hostname()):
	case u.Scheme != "https":
		return errors.New("url: " + want)
	}
	if !allowLocal && isLocal(u.Hostname()) {
		return errors.New("url: the host must not be a loopback address")
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		if err := checkAddr(addr, allowLocal); err != nil {
			return fmt.Errorf("url: %w", err)
		}
	}
	return nil
}

// origin returns the scheme and the host of a valid URL.
func origin(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

func isLocal(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

var (
	// metadata are addresses of metadata services that are not link-local.
	metadata = []netip.Addr{netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("192.0.0.192")}
	// nat64 embeds IPv4 addresses.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

// errAddress means that no delivery may be sent to an address.
var errAddress = errors.New("deliveries to this address are not allowed")

// checkAddr returns an error for an address that no delivery may be sent to: loopback, link-local and metadata addresses, and addresses
// of no single host.
func checkAddr(addr netip.Addr, allowLocal bool) error {
	addr = addr.Unmap().WithZone("")
	if nat64.Contains(addr) {
		b := addr.As16()
		addr = netip.AddrFrom4([4]byte(b[12:]))
	}
	switch {
	case addr.IsLoopback():
		if allowLocal {
			return nil
		}
		return fmt.Errorf("%s is a loopback address: %w", addr, errAddress)
	case addr.IsLinkLocalUnicast(), slices.Contains(metadata, addr):
		return fmt.Errorf("%s is a link-local or metadata address: %w", addr, errAddress)
	case addr.IsUnspecified(), addr.IsMulticast(), addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%s is not the address of a host: %w", addr, errAddress)
	}
	return nil
}
