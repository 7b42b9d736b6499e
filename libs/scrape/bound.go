package scrape

import "sync"

// Other is the label value that stands for all omitted values.
const Other = "other"

const (
	maxValue  = 64
	maxDigits = 4
)

// Bound limits the number and the form of a label's values, whatever their source. It is safe for concurrent use.
type Bound struct {
	mu    sync.RWMutex
	limit int
	seen  map[string]struct{}
}

// NewBound creates a Bound that accepts the known values, and the first limit other values.
func NewBound(limit int, known ...string) *Bound {
	b := &Bound{limit: limit + len(known), seen: make(map[string]struct{}, len(known))}
	for _, v := range known {
		b.seen[v] = struct{}{}
	}
	return b
}

// Value returns v, or Other if there are too many values or v is not a word. A word has at most 64 bytes and contains letters, digits,
// blanks and _ - . : / only, and not so many digits that it looks like an id. An empty value stays empty.
func (b *Bound) Value(v string) string {
	if v == "" {
		return v
	}
	b.mu.RLock()
	_, ok := b.seen[v]
	b.mu.RUnlock()
	if ok {
		return v
	}
	if !word(v) {
		return Other
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.seen[v]; ok {
		return v
	}
	if len(b.seen) >= b.limit {
		return Other
	}
	b.seen[v] = struct{}{}
	return v
}

func word(v string) bool {
	if len(v) > maxValue {
		return false
	}
	digits := 0
	for i := range len(v) {
		switch c := v[i]; {
		case c >= '0' && c <= '9':
			if digits++; digits > maxDigits {
				return false
			}
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c == '-', c == '.', c == ':', c == '/', c == ' ':
		default:
			return false
		}
	}
	return true
}
