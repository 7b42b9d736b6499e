package store

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"time"
)

// Element types of columns: constants of pg_type.oid.
const (
	typeBool        = 16
	typeInt4        = 23
	typeText        = 25
	typeTimestamptz = 1184
	typeUUID        = 2950
)

// columnHeader is the size of the header of a one-dimensional array: number of dimensions, NULL flag, element type, number of elements,
// and index of the first element.
const columnHeader = 20

// postgresEpoch is the zero time of Postgres, in microseconds.
var postgresEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// column is a PostgreSQL array in binary form: one column of the rows that a statement writes. It needs no parsing of numbers and times
// and no quoting. The zero value is not usable; use newColumn.
type column struct {
	b     []byte
	n     uint32
	typ   uint32
	nulls bool
}

// newColumn returns a column of a type with capacity for about elements values.
func newColumn(typ uint32, elements int) column {
	width := 4
	switch typ {
	case typeBool:
		width++
	case typeInt4:
		width += 4
	case typeTimestamptz:
		width += 8
	case typeUUID:
		width += 16
	}
	return column{b: make([]byte, columnHeader, columnHeader+elements*width), typ: typ}
}

func (c *column) null() {
	c.n++
	c.nulls = true
	c.b = append(c.b, 0xff, 0xff, 0xff, 0xff)
}

func (c *column) size(n int) {
	c.n++
	c.b = binary.BigEndian.AppendUint32(c.b, uint32(n))
}

func (c *column) int(v int) {
	c.size(4)
	c.b = binary.BigEndian.AppendUint32(c.b, uint32(v))
}

func (c *column) bool(v bool) {
	c.size(1)
	if v {
		c.b = append(c.b, 1)
		return
	}
	c.b = append(c.b, 0)
}

// time appends a time, cut to microseconds, or NULL if it is zero. A year that JSON cannot represent is sent as a value that the server
// rejects with a data exception.
func (c *column) time(t time.Time) {
	if t.IsZero() {
		c.null()
		return
	}
	micros := t.UnixMicro() - postgresEpoch
	if year := t.UTC().Year(); year < 1 || year > 9999 {
		micros = math.MinInt64 + 1
	}
	c.size(8)
	c.b = binary.BigEndian.AppendUint64(c.b, uint64(micros))
}

// text appends a string, which may be empty.
func (c *column) text(v string) {
	c.size(len(v))
	c.b = append(c.b, v...)
}

// textOrNull appends a string, or NULL if it is empty.
func (c *column) textOrNull(v string) {
	if v == "" {
		c.null()
		return
	}
	c.text(v)
}

// list appends a list as the literal of a text[], or NULL if it is empty.
func (c *column) list(v []string) {
	if len(v) == 0 {
		c.null()
		return
	}
	var inner array
	for _, s := range v {
		inner.text(s)
	}
	c.text(inner.String())
}

// uuid appends a UUID, given as a text of 36 characters.
func (c *column) uuid(v string) error {
	if len(v) != 36 || v[8] != '-' || v[13] != '-' || v[18] != '-' || v[23] != '-' {
		return fmt.Errorf("id %q: must be a UUID", v)
	}
	var digits [32]byte
	copy(digits[:8], v)
	copy(digits[8:12], v[9:])
	copy(digits[12:16], v[14:])
	copy(digits[16:20], v[19:])
	copy(digits[20:], v[24:])
	var id [16]byte
	if _, err := hex.Decode(id[:], digits[:]); err != nil {
		return fmt.Errorf("id %q: must be a UUID", v)
	}
	c.size(len(id))
	c.b = append(c.b, id[:]...)
	return nil
}

// value returns the parameter for a statement. The driver sends the bytes unchanged, because binary_parameters is on.
func (c *column) value() []byte {
	if c.n == 0 { // an array without dimensions
		empty := make([]byte, 12)
		binary.BigEndian.PutUint32(empty[8:], c.typ)
		return empty
	}
	binary.BigEndian.PutUint32(c.b, 1)
	if c.nulls {
		binary.BigEndian.PutUint32(c.b[4:], 1)
	}
	binary.BigEndian.PutUint32(c.b[8:], c.typ)
	binary.BigEndian.PutUint32(c.b[12:], c.n)
	binary.BigEndian.PutUint32(c.b[16:], 1)
	return c.b
}
