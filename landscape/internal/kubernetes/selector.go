package kubernetes

import (
	"fmt"
	"slices"
	"strings"
)

// requirement is one term of a label selector.
type requirement struct {
	key    string
	op     string // "in", "notin", "exists", "absent"
	values []string
}

// parseSelector reads the label selector grammar of the Kubernetes API: a=b, a==b, a!=b, a in (b,c), a notin (b), a, !a.
func parseSelector(s string) ([]requirement, error) {
	var out []requirement
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		end := strings.IndexByte(s, ',')
		if open := strings.IndexByte(s, '('); open >= 0 && (end < 0 || open < end) {
			shut := strings.IndexByte(s, ')')
			if shut < open {
				return nil, fmt.Errorf("label selector %q: a parenthesis is not closed", s)
			}
			end = shut + 1
			if end == len(s) {
				end = -1
			} else if s[end] != ',' {
				return nil, fmt.Errorf("label selector %q: a comma is missing", s)
			}
		}
		term := s
		if end >= 0 {
			term, s = s[:end], s[end+1:]
		} else {
			s = ""
		}
		req, err := parseTerm(strings.TrimSpace(term))
		if err != nil {
			return nil, err
		}
		out = append(out, req)
	}
	return out, nil
}

func parseTerm(term string) (requirement, error) {
	if list, ok := strings.CutSuffix(term, ")"); ok {
		head, values, _ := strings.Cut(list, "(")
		words := strings.Fields(head)
		if len(words) == 2 && (words[1] == "in" || words[1] == "notin") {
			req := requirement{key: words[0], op: words[1]}
			for v := range strings.SplitSeq(values, ",") {
				req.values = append(req.values, strings.TrimSpace(v))
			}
			return req, nil
		}
		return requirement{}, fmt.Errorf("label selector term %q is not understood", term)
	}
	for _, sign := range []struct{ text, op string }{{"!=", "notin"}, {"==", "in"}, {"=", "in"}} {
		if key, value, ok := strings.Cut(term, sign.text); ok {
			return checked(requirement{key: strings.TrimSpace(key), op: sign.op, values: []string{strings.TrimSpace(value)}}, term)
		}
	}
	if key, ok := strings.CutPrefix(term, "!"); ok {
		return checked(requirement{key: strings.TrimSpace(key), op: "absent"}, term)
	}
	return checked(requirement{key: term, op: "exists"}, term)
}

func checked(req requirement, term string) (requirement, error) {
	if req.key == "" || strings.ContainsAny(req.key, " ()!=") {
		return req, fmt.Errorf("label selector term %q is not understood", term)
	}
	return req, nil
}

func matches(reqs []requirement, labels map[string]string) bool {
	for _, req := range reqs {
		value, has := labels[req.key]
		var ok bool
		switch req.op {
		case "in":
			ok = has && slices.Contains(req.values, value)
		case "notin":
			ok = !has || !slices.Contains(req.values, value)
		case "exists":
			ok = has
		case "absent":
			ok = !has
		}
		if !ok {
			return false
		}
	}
	return true
}
