package event

import (
	"slices"
	"strings"
)

// AccountBus is the account of the orchestrator. The streams, the consumers and the stage bucket are in it, and nobody else is.
const AccountBus = "KEB"

// AccountOf is the account of a user of the bus. Each has its own, since the server sends the answer to a question wherever the
// question says, with rights of its own: within one account, a user could let it delete a stream or speak in the name of another.
func AccountOf(user string) string {
	if user == UserOrchestrator {
		return AccountBus
	}
	return user
}

// accountInfo asks for the figures of an account. An account that imports it is not given a JetStream of its own, which would
// answer, too, and say that there is none.
const accountInfo = "$JS.API.INFO"

// Grant lets one account send messages to another, on a subject that means the same in both. Answers find their way back.
type Grant struct {
	// From is the account that listens, To the one that may send. For facts, From is the one that sends.
	From, To string
	Subject  string
	// Many tells that one message may get more than one answer.
	Many bool
	// Facts tells that To may listen to what is published in From, instead of sending.
	Facts bool
}

// Grants are what the accounts of these users give each other, so that each can do what its user may. What the orchestrator may do
// with its own streams needs none.
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

// serves tells that a subject is answered by a user, and not by JetStream.
func serves(subject string) bool {
	return strings.HasPrefix(subject, "keb.ask.") || strings.HasPrefix(subject, "keb.worker.") || strings.HasPrefix(subject, "$SRV.")
}

// answered is a grant from each user who listens where somebody asks.
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

// manyAnswers tells where one question has several answers: a pull, a read of many values, and the services of all replicas.
func manyAnswers(subject string) bool {
	return strings.HasPrefix(subject, "$JS.API.CONSUMER.MSG.NEXT.") || strings.HasPrefix(subject, "$JS.API.DIRECT.GET.") || strings.HasPrefix(subject, "$SRV.")
}

// narrower is the subject filter that both cover, if one covers the other.
func narrower(a, b string) (string, bool) {
	switch {
	case covers(a, b):
		return b, true
	case covers(b, a):
		return a, true
	}
	return "", false
}

// covers tells that every subject of b is one of a.
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
