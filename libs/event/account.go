package event

import (
	"slices"
	"strings"
)

// AccountBus is the account of the orchestrator. It contains the streams, the consumers and the stage bucket. No other user belongs to it.
const AccountBus = "KEB"

// AccountOf returns the account of a user of the bus. Each user has an account of its own because the server sends an answer, with its own
// rights, to any subject that the request names. Within one account, a user could use this to delete a stream or to impersonate another
// user.
func AccountOf(user string) string {
	if user == UserOrchestrator {
		return AccountBus
	}
	return user
}

// accountInfo is the subject of a request for account figures. An account that imports it does not get a JetStream of its own, which would
// also answer, and report that there is no JetStream.
const accountInfo = "$JS.API.INFO"

// Grant allows one account to send messages to another, on a subject with the same meaning in both. Answers are routed back.
type Grant struct {
	// From is the account that listens, and To the account that may send. With Facts, From sends and To may listen.
	From, To string
	Subject  string
	// Many reports whether a message may get more than one answer.
	Many bool
	// Facts reports whether To may listen to what From publishes, instead of sending.
	Facts bool
}

// Grants returns the grants between the accounts of these users, so that each user can do what its permissions allow. The orchestrator's
// use of its own streams needs no grants.
func Grants(users []User) []Grant {
	var grants []Grant
	for _, u := range users {
		to := AccountOf(u.Name)
		if to != AccountBus && !slices.Contains(u.Publish, accountInfo) {
			grants = append(grants, Grant{From: AccountBus, To: to, Subject: accountInfo})
		}
		for _, subject := range u.Publish {
			if serves(subject) {
				grants = append(grants, answered(to, subject, users)...)
				continue
			}
			if to != AccountBus {
				grants = append(grants, Grant{From: AccountBus, To: to, Subject: subject, Many: manyAnswers(subject)})
			}
		}
		for _, subject := range u.Subscribe {
			if to != AccountBus && strings.HasPrefix(subject, "keb.fact.") {
				grants = append(grants, Grant{From: AccountBus, To: to, Subject: subject, Facts: true})
			}
		}
	}
	return grants
}

// serves reports whether a user, and not JetStream, answers a subject.
func serves(subject string) bool {
	return strings.HasPrefix(subject, "keb.ask.") || strings.HasPrefix(subject, "keb.worker.") || strings.HasPrefix(subject, "$SRV.")
}

// answered returns a grant from each user that listens on a subject on which another user asks.
func answered(to, subject string, users []User) []Grant {
	var grants []Grant
	for _, u := range users {
		from := AccountOf(u.Name)
		if from == to {
			continue
		}
		for _, filter := range u.Subscribe {
			narrow, ok := narrower(subject, filter)
			if ok && !slices.ContainsFunc(grants, func(g Grant) bool { return g.From == from && g.Subject == narrow }) {
				grants = append(grants, Grant{From: from, To: to, Subject: narrow, Many: manyAnswers(narrow)})
			}
		}
	}
	return grants
}

// manyAnswers reports whether a request on a subject can have several answers: a pull, a read of many values, and a request to the services
// of all replicas.
func manyAnswers(subject string) bool {
	return strings.HasPrefix(subject, "$JS.API.CONSUMER.MSG.NEXT.") || strings.HasPrefix(subject, "$JS.API.DIRECT.GET.") || strings.HasPrefix(subject, "$SRV.")
}

// narrower returns the narrower of two subject filters if one covers the other.
func narrower(a, b string) (string, bool) {
	switch {
	case covers(a, b):
		return b, true
	case covers(b, a):
		return a, true
	}
	return "", false
}

// covers reports whether the subject filter a matches every subject that b matches.
func covers(a, b string) bool {
	wide, narrow := strings.Split(a, "."), strings.Split(b, ".")
	for i, token := range wide {
		switch {
		case token == ">":
			return len(narrow) > i
		case len(narrow) <= i || narrow[i] == ">":
			return false
		case token != "*" && token != narrow[i]:
			return false
		}
	}
	return len(wide) == len(narrow)
}
