package store

import (
	"database/sql/driver"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// array builds the literal of a PostgreSQL array. Statements take one array per column. The arrays of the driver use reflection for
// values that can be NULL, which is slower.
type array struct{ b strings.Builder }

func (a *array) next() *strings.Builder {
	if a.b.Len() == 0 {
		a.b.WriteByte('{')
	} else {
		a.b.WriteByte(',')
	}
	return &a.b
}

func (a *array) null() { a.next().WriteString("NULL") }

// raw appends a value that needs no quotes: a number, a UUID, a boolean.
func (a *array) raw(v string) { a.next().WriteString(v) }

func (a *array) int(v int64) {
	var buf [20]byte
	a.next().Write(strconv.AppendInt(buf[:0], v, 10))
}

func (a *array) float(v float64) {
	var buf [32]byte
	a.next().Write(strconv.AppendFloat(buf[:0], v, 'g', -1, 64))
}

// time appends a time, or NULL if it is zero.
func (a *array) time(t time.Time) {
	if t.IsZero() {
		a.null()
		return
	}
	var buf [40]byte
	b := a.next()
	b.WriteByte('"')
	b.Write(t.UTC().AppendFormat(buf[:0], "2006-01-02 15:04:05.999999Z"))
	b.WriteByte('"')
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// text appends a string, which may be empty.
func (a *array) text(v string) {
	b := a.next()
	b.WriteByte('"')
	if strings.ContainsAny(v, `\"`) {
		_, _ = escape.WriteString(b, v) // a strings.Builder does not fail
	} else {
		b.WriteString(v)
	}
	b.WriteByte('"')
}

// textOrNull appends a string, or NULL if it is empty.
func (a *array) textOrNull(v string) {
	if v == "" {
		a.null()
		return
	}
	a.text(v)
}

// json appends a value as JSON, or NULL if it is empty.
func (a *array) json(v any, empty bool) error {
	if empty {
		a.null()
		return nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	a.text(cleanJSON(string(text)))
	return nil
}

// list appends a list as the literal of a text[], or NULL if it is empty.
func (a *array) list(v []string) {
	if len(v) == 0 {
		a.null()
		return
	}
	var inner array
	for _, s := range v {
		inner.text(s)
	}
	a.text(inner.String())
}

// String returns the literal.
func (a *array) String() string {
	if a.b.Len() == 0 {
		return "{}"
	}
	return a.b.String() + "}"
}

// Value implements driver.Valuer.
func (a *array) Value() (driver.Value, error) { return a.String(), nil }

// uuidText returns the text form of a UUID. The driver may return it in binary form.
func uuidText(b []byte) string {
	if len(b) != 16 {
		return string(b)
	}
	var out [36]byte
	hex.Encode(out[:8], b[:4])
	out[8] = '-'
	hex.Encode(out[9:13], b[4:6])
	out[13] = '-'
	hex.Encode(out[14:18], b[6:8])
	out[18] = '-'
	hex.Encode(out[19:23], b[8:10])
	out[23] = '-'
	hex.Encode(out[24:], b[10:])
	return string(out[:])
}
