package instance

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/mask"
	"github.com/kyma-project/keb/libs/osb"
)

// maxDescription limits the length of a message to a platform, in bytes.
const maxDescription = 500

// Outlook is what is known about the time of an operation.
type Outlook struct {
	// Elapsed is the time since its request, and Usual how long such operations usually take; zero if that is not known.
	Elapsed, Usual time.Duration
	// TimedOut reports whether the platform's maximum polling time has passed.
	TimedOut bool
}

// LastOperation returns the state of an operation for the platform (docs/contracts/osb.md#last-operation). The description is for
// customers: it has no names of steps, systems and hosts.
func (o *Operation) LastOperation(look Outlook) osb.LastOperation {
	timedOut := look.TimedOut
	yes, no := true, false
	switch {
	case o.SupersededBy != "":
		removed := "deletion of the instance"
		if o.Suspension {
			removed = "removal of the runtime"
		}
		l := osb.LastOperation{State: osb.StateFailed, Description: "cancelled, because the " + removed + " was requested"}
		if o.Type == event.Update { // an update that fails has both flags (L15)
			l.InstanceUsable, l.UpdateRepeatable = &no, &no
		}
		return l
	case o.State == event.Succeeded:
		return osb.LastOperation{State: osb.StateSucceeded, Description: o.title() + " succeeded"}
	case o.State.Final() || timedOut:
		l := osb.LastOperation{State: osb.StateFailed, Description: o.told(timedOut)}
		// A partially removed instance is not usable (L16). After a failed update, the instance is as usable as before, and the update
		// can be repeated (L15).
		switch o.Type {
		case event.Deprovision:
			l.InstanceUsable = &no
		case event.Update:
			l.InstanceUsable, l.UpdateRepeatable = &yes, &yes
		}
		return l
	}
	return osb.LastOperation{State: osb.StateInProgress, Description: o.outlook(look)}
}

// outlook describes an operation in progress for customers.
func (o *Operation) outlook(look Outlook) string {
	text := o.title() + " is running"
	switch {
	case o.State == event.Pending:
		text = o.title() + " is waiting to start"
	case o.Position.Stage != "":
		text = o.title() + ": " + o.stage()
	}
	if o.State != event.Pending && o.Error != nil {
		c := CauseOf(o.Error)
		text += fmt.Sprintf("; delayed: %s (the cause is on %s side); it is tried again automatically", c.Text, c.Side)
	}
	switch {
	case look.Usual == 0:
	case look.Elapsed > 2*look.Usual:
		text += fmt.Sprintf("; it takes longer than usual (%s)", about(look.Usual))
	default:
		text += "; usually takes " + about(look.Usual)
	}
	return text
}

// told describes an operation that has not succeeded for customers.
func (o *Operation) told(timedOut bool) string {
	switch {
	case o.State == event.Cancelled:
		return o.title() + " was cancelled"
	case !o.State.Final() && timedOut:
		return o.title() + " took too long"
	}
	text := o.title() + " failed"
	if o.Position.Stage != "" {
		text += " in " + o.stage()
	}
	if o.Error == nil {
		return text
	}
	c := CauseOf(o.Error)
	return fmt.Sprintf("%s: %s. The cause is on %s side. %s Operation: %s", text, c.Text, c.Side, c.Advice, o.ID)
}

// stage returns the current stage and its number.
func (o *Operation) stage() string {
	name := strings.ReplaceAll(o.Position.Stage, "_", " ")
	if i := slices.Index(o.Stages, o.Position.Stage); i >= 0 {
		return fmt.Sprintf("stage %d of %d (%s)", i+1, len(o.Stages), name)
	}
	return "stage " + name
}

// about returns a rounded duration.
func about(d time.Duration) string {
	switch {
	case d < 90*time.Second:
		return "about a minute"
	case d < 2*time.Hour:
		return fmt.Sprintf("%d minutes", int(d.Round(time.Minute).Minutes()))
	}
	return fmt.Sprintf("%d hours", int(d.Round(time.Hour).Hours()))
}

// Detail describes an operation for operators, with its step and its error.
func (o *Operation) Detail() string {
	switch {
	case o.SupersededBy != "", o.State == event.Succeeded:
		return o.LastOperation(Outlook{}).Description
	case o.State.Final():
		return o.failure()
	}
	return o.progress()
}

func (o *Operation) progress() string {
	if o.State == event.Pending {
		return o.title() + " is waiting to start"
	}
	if o.Position.Step == "" {
		return o.title() + " is running"
	}
	text := fmt.Sprintf("%s: stage %s, step %s, attempt %d",
		o.title(), o.Position.Stage, o.Position.Step, max(1, o.Position.StepAttempt))
	if said := o.said(); said != "" {
		text += ": " + said
	}
	return text
}

func (o *Operation) failure() string {
	if o.State == event.Cancelled {
		return o.title() + " was cancelled" + prefixed(": ", o.Message)
	}
	text := o.title() + " failed"
	if o.Position.Step != "" {
		text += fmt.Sprintf(" in stage %s, step %s", o.Position.Stage, o.Position.Step)
	}
	return text + prefixed(": ", o.said())
}

// said returns the message of the last step. It was made public before it was stored.
func (o *Operation) said() string {
	if o.Error == nil {
		return o.Message
	}
	text := o.Error.Message
	if text == "" {
		text = o.Error.Reason
	}
	if o.Error.Component != "" {
		text = o.Error.Component + prefixed(": ", text)
	}
	return text
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func (o *Operation) title() string {
	switch o.Type {
	case event.Provision:
		if o.Suspension {
			return "unsuspension"
		}
		return "provisioning"
	case event.Deprovision:
		if o.Suspension {
			return "suspension"
		}
		return "deprovisioning"
	case event.Update:
		return "update"
	}
	return "upgrade"
}

// private matches text that a platform must not see, besides credentials: addresses of internal systems.
var private = []*regexp.Regexp{
	regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"']+`),
	regexp.MustCompile(`\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b`),
	regexp.MustCompile(`\[[0-9a-fA-F:]+\](:\d+)?`),
	regexp.MustCompile(`(?i)\b[a-z0-9_-]+(\.[a-z0-9_-]+)*\.[a-z]{2,}\b(:\d+)?`),
	regexp.MustCompile(`(?i)\b[a-z0-9-]+:\d{2,5}\b`),
	regexp.MustCompile(`(?i)\blookup \S+`),
	regexp.MustCompile(`\b[A-Za-z0-9+/_]{40,}={0,2}`),
}

// Public removes internal data from a message: it replaces hosts, addresses and possible credentials.
func Public(message string) string {
	text := mask.Text(strings.Join(strings.Fields(strings.ToValidUTF8(message, "")), " "))
	for _, p := range private {
		text = p.ReplaceAllString(text, "[...]")
	}
	if len(text) > maxDescription {
		text = strings.ToValidUTF8(text[:maxDescription], "") + "..."
	}
	return text
}
