package event

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
)

// MaxPayload is what the bus takes in one message, in bytes: the default of a NATS server.
const MaxPayload = 1 << 20

// MaxDetails is the largest StoredSize of the saved data of an operation: a command carries it beside the order.
const MaxDetails = MaxPayload / 2

// StoredSize returns how many bytes valid JSON has at most once a column of type jsonb writes it out: a number is written without its
// exponent (1e308 has 309 digits), and a space follows each comma and colon. What is sent later comes from there.
func StoredSize(raw []byte) int {
	size := 0
	for i := 0; i < len(raw); {
		switch c := raw[i]; {
		case c == '"':
			end := stringEnd(raw, i)
			size += end - i
			i = end
		case c == '-' || c >= '0' && c <= '9':
			end := numberEnd(raw, i)
			size += numberSize(raw[i:end])
			i = end
		case c == ' ' || c == '\n' || c == '\r' || c == '\t':
			i++
		default:
			size++
			if c == ',' || c == ':' {
				size++
			}
			i++
		}
	}
	return size
}

// stringEnd returns the index behind the string that begins at i.
func stringEnd(raw []byte, i int) int {
	for i++; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}

func numberEnd(raw []byte, i int) int {
	for ; i < len(raw); i++ {
		switch c := raw[i]; {
		case c >= '0' && c <= '9', c == '-', c == '+', c == '.', c == 'e', c == 'E':
		default:
			return i
		}
	}
	return i
}

// maxExponent is beyond what Postgres takes (131,072 digits before the point, 16,383 behind it).
const maxExponent = 1 << 20

// numberSize returns how many bytes a number has at most without its exponent.
func numberSize(number []byte) int {
	mantissa, exponent := number, 0
	if i := bytes.IndexAny(number, "eE"); i >= 0 {
		mantissa = number[:i]
		var err error
		if exponent, err = strconv.Atoi(string(number[i+1:])); err != nil {
			exponent = maxExponent // whichever way it is out of range, Postgres refuses it
		}
		exponent = min(max(exponent, -maxExponent), maxExponent)
	}
	whole, fraction, sign := len(mantissa), 0, 0
	if i := bytes.IndexByte(mantissa, '.'); i >= 0 {
		whole, fraction = i, len(mantissa)-i-1
	}
	if mantissa[0] == '-' {
		whole, sign = whole-1, 1
	}
	size := sign + max(whole+exponent, 1)
	if behind := max(fraction-exponent, 0); behind > 0 {
		size += 1 + behind
	}
	return size
}

// FitDetails returns saved data that a command can carry: it leaves out the largest members until the rest fits, and names them. Only an
// earlier release has saved more than fits. Ids, which are short, stay.
func FitDetails(details json.RawMessage) (fitting json.RawMessage, left []string) {
	size := StoredSize(details)
	if size <= MaxDetails {
		return details, nil
	}
	workers := map[string]map[string]json.RawMessage{}
	if err := json.Unmarshal(details, &workers); err != nil {
		return nil, []string{"everything"}
	}
	type member struct {
		worker, name string
		size         int
	}
	var members []member
	for worker, own := range workers {
		for name, value := range own {
			members = append(members, member{worker, name, StoredSize(value)})
		}
	}
	slices.SortFunc(members, func(a, b member) int {
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.worker, b.worker), cmp.Compare(a.name, b.name))
	})
	for _, m := range members {
		if size <= MaxDetails {
			break
		}
		size -= m.size
		delete(workers[m.worker], m.name)
		left = append(left, m.worker+"."+m.name)
	}
	fitting, err := json.Marshal(workers)
	if err != nil {
		return nil, left
	}
	return fitting, left
}
