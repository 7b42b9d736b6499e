package osb

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Canonical returns a JSON value in its canonical form: members sorted by name, no white space, numbers in their shortest form (1.0, 1e0
// and 1 are one number). Two values are equivalent exactly if their canonical forms are equal. Of duplicated members the last counts.
// An empty value and null are equivalent to the empty object, because absent parameters are equivalent to empty ones.
func Canonical(raw json.RawMessage) (json.RawMessage, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage("{}"), nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("canonical json: %w", err)
	}
	if decoder.InputOffset() != int64(len(raw)) {
		return nil, fmt.Errorf("canonical json: more than one value")
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	// Maps are encoded in the order of their keys.
	if err := encoder.Encode(canonicalNumbers(value)); err != nil {
		return nil, fmt.Errorf("canonical json: %w", err)
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}

// SameJSON reports whether two JSON values have the same canonical form. Values that are not valid JSON are never the same.
func SameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) && json.Valid(a) {
		return true
	}
	ca, errA := Canonical(a)
	cb, errB := Canonical(b)
	return errA == nil && errB == nil && bytes.Equal(ca, cb)
}

func canonicalNumbers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name := range v {
			v[name] = canonicalNumbers(v[name])
		}
	case []any:
		for i := range v {
			v[i] = canonicalNumbers(v[i])
		}
	case json.Number:
		return canonicalNumber(v)
	}
	return value
}

// canonicalNumber works on the digits, so that large integers and exponents lose no precision and need no memory.
func canonicalNumber(n json.Number) json.Number {
	digits, sign := string(n), ""
	if rest, negative := strings.CutPrefix(digits, "-"); negative {
		digits, sign = rest, "-"
	}
	exponent := 0
	if i := strings.IndexAny(digits, "eE"); i >= 0 {
		e, err := strconv.Atoi(digits[i+1:])
		// Sums of two such exponents cannot overflow. Larger ones are equivalent only if they are written identically.
		if err != nil || e > 1<<30 || e < -(1<<30) {
			return n
		}
		digits, exponent = digits[:i], e
	}
	if whole, fraction, ok := strings.Cut(digits, "."); ok {
		digits, exponent = whole+fraction, exponent-len(fraction)
	}
	trimmed := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(trimmed)
	trimmed = strings.TrimLeft(trimmed, "0")
	switch {
	case trimmed == "":
		return "0"
	case exponent == 0:
		return json.Number(sign + trimmed)
	case exponent > 0 && exponent <= 20:
		return json.Number(sign + trimmed + strings.Repeat("0", exponent))
	default:
		return json.Number(sign + trimmed + "e" + strconv.Itoa(exponent))
	}
}
