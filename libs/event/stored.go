package event

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
)

// MaxPayload is the largest message on the bus, in bytes. It is the default of a NATS server.
const MaxPayload = 1 << 20

// MaxDetails is the largest StoredSize of the saved data of an operation. A command also contains the operation.
const MaxDetails = MaxPayload / 2

// StoredSize returns the maximum number of bytes of valid JSON after a column of type jsonb was written and read. Postgres writes numbers
// without exponents (1e308 has 309 digits), and a space after each comma and colon. Later commands contain this form.
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

// stringEnd returns the index after the string that begins at i.
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

// maxExponent exceeds the limits of Postgres (131,072 digits before the decimal point, 16,383 after it).
const maxExponent = 1 << 20

// numberSize returns the maximum number of bytes of a number without its exponent.
func numberSize(number []byte) int {
	mantissa, exponent := number, 0
	if i := bytes.IndexAny(number, "eE"); i >= 0 {
		mantissa = number[:i]
		var err error
		if exponent, err = strconv.Atoi(string(number[i+1:])); err != nil {
			exponent = maxExponent // Postgres rejects either sign
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

// FitDetails returns saved data that fits into a command. It removes the largest members until the rest fits, and returns their names. Only
// an earlier release can have saved more than fits. IDs are short, so they remain.
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
