package bus

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	"github.com/nats-io/nats.go"
)

// Headers of a CloudEvent in binary mode: each attribute has its name with this prefix.
const (
	headerPrefix      = "ce-"
	headerSpecVersion = "ce-specversion"
	headerID          = "ce-id"
	headerSource      = "ce-source"
	headerType        = "ce-type"
	headerSubject     = "ce-subject"
	headerTime        = "ce-time"
	headerContentType = "ce-datacontenttype"
	headerSchema      = "ce-dataschema"
	// A content-type header marks a structured message. The NATS binding has no other use for it, but senders that follow the HTTP
	// binding put the datacontenttype there.
	plainContentType = "content-type"
	// headerTrace is the header of the Distributed Tracing extension.
	headerTrace = "ce-traceparent"

	specVersion = "1.0"
	mediaJSON   = "application/json"
	structured  = "application/cloudevents"
)

// ErrUnreadable is wrapped by errors about messages that are not CloudEvents.
var ErrUnreadable = errors.New("not a readable CloudEvent")

// Encode returns the headers and the data of a message in binary mode. It rejects an event that lacks a required attribute, or that
// is not of version 1.0.
func Encode(e *cloudevents.Event) (nats.Header, []byte, error) {
	c, ok := e.Context.(*cloudevents.EventContextV1)
	if !ok || c == nil {
		return nil, nil, errors.New("encode event: specversion must be 1.0")
	}
	source := c.Source.String()
	switch {
	case c.ID == "":
		return nil, nil, errors.New("encode event: id is empty")
	case c.Type == "":
		return nil, nil, fmt.Errorf("encode event %q: type is empty", c.ID)
	case source == "":
		return nil, nil, fmt.Errorf("encode event %q: source is empty", c.ID)
	}
	// One slice backs all values, because nats.Header needs a slice per name. A map of at most eight names is a single small allocation,
	// and most events need no more, including the message id; a larger map needs several large allocations.
	n := 4 + len(c.Extensions)
	for _, set := range [...]bool{c.Subject != nil, c.Time != nil, c.DataContentType != nil, c.DataSchema != nil} {
		if set {
			n++
		}
	}
	values := make([]string, 0, n)
	h := make(nats.Header, n+1)
	set := func(name, value string) {
		values = append(values, value)
		n := len(values)
		h[name] = values[n-1 : n : n]
	}
	set(headerSpecVersion, specVersion)
	set(headerID, escape(c.ID))
	set(headerSource, escape(source))
	set(headerType, escape(c.Type))
	if c.Subject != nil {
		set(headerSubject, escape(*c.Subject))
	}
	if c.Time != nil {
		set(headerTime, c.Time.UTC().Format(time.RFC3339Nano))
	}
	if c.DataContentType != nil {
		set(headerContentType, escape(*c.DataContentType))
	}
	if c.DataSchema != nil {
		set(headerSchema, escape(c.DataSchema.String()))
	}
	for name, v := range c.Extensions {
		s, ok := v.(string)
		if !ok {
			var err error
			if s, err = types.Format(v); err != nil {
				return nil, nil, fmt.Errorf("encode event %q: extension %s: %w", c.ID, name, err)
			}
		}
		set(headerPrefix+name, escape(s))
	}
	return h, e.DataEncoded, nil
}

// Decode decodes a message in binary or structured mode. Its errors wrap ErrUnreadable and contain the name of the header or field.
func Decode(h nats.Header, data []byte) (cloudevents.Event, error) {
	if ct := contentType(h); isStructured(ct) {
		return decodeStructured(ct, data)
	}
	if v, ok := h[headerSpecVersion]; ok && len(v) == 1 && v[0] == specVersion {
		return decodeBinary(h, data)
	}
	// Slow path: some clients use another case for header names.
	lower, err := lowerNames(h)
	if err != nil {
		return cloudevents.Event{}, err
	}
	v, ok := lower[headerSpecVersion]
	if !ok {
		return cloudevents.Event{}, unreadable("it has neither a %s header nor the content type %s", headerSpecVersion, structured)
	}
	if len(v) != 1 || v[0] != specVersion {
		return cloudevents.Event{}, unreadable("header %s is %q: want %s", headerSpecVersion, strings.Join(v, ","), specVersion)
	}
	return decodeBinary(lower, data)
}

func decodeBinary(h nats.Header, data []byte) (cloudevents.Event, error) {
	c := &cloudevents.EventContextV1{}
	for name, vs := range h {
		if !strings.HasPrefix(name, headerPrefix) {
			if len(name) > 2 && strings.EqualFold(name[:3], headerPrefix) {
				lower, err := lowerNames(h)
				if err != nil {
					return cloudevents.Event{}, err
				}
				return decodeBinary(lower, data)
			}
			continue
		}
		if len(vs) != 1 {
			return cloudevents.Event{}, unreadable("header %s has %d values: want one", name, len(vs))
		}
		v, err := unescape(vs[0])
		if err != nil {
			return cloudevents.Event{}, unreadable("header %s %w", name, err)
		}
		if err := setAttribute(c, name, v); err != nil {
			return cloudevents.Event{}, err
		}
	}
	if c.DataContentType == nil {
		if ct := contentType(h); ct != "" {
			c.DataContentType = &ct
		}
	}
	switch {
	case c.ID == "":
		return cloudevents.Event{}, unreadable("header %s is missing or empty", headerID)
	case c.Type == "":
		return cloudevents.Event{}, unreadable("header %s is missing or empty", headerType)
	case c.Source.URL == (types.URIRef{}).URL:
		return cloudevents.Event{}, unreadable("header %s is missing or empty", headerSource)
	}
	e := cloudevents.Event{Context: c}
	if len(data) > 0 {
		e.DataEncoded = data
		e.DataBase64 = c.DataContentType != nil && !isText(*c.DataContentType)
	}
	return e, nil
}

func setAttribute(c *cloudevents.EventContextV1, name, v string) error {
	switch name {
	case headerSpecVersion:
	case headerID:
		c.ID = v
	case headerType:
		c.Type = v
	case headerSource:
		ref, ok := sources.parse(v)
		if !ok {
			return unreadable("header %s is %q: want a URI reference", name, clip(v))
		}
		c.Source = ref
	case headerSubject:
		if v != "" {
			c.Subject = &v
		}
	case headerTime:
		t, err := time.Parse(time.RFC3339Nano, v)
		if err != nil {
			return unreadable("header %s is %q: want a time as in RFC 3339", name, clip(v))
		}
		c.Time = &types.Timestamp{Time: t}
	case headerContentType:
		if v != "" {
			c.DataContentType = &v
		}
	case headerSchema:
		u := types.ParseURI(v)
		if u == nil || !u.IsAbs() {
			return unreadable("header %s is %q: want an absolute URI", name, clip(v))
		}
		c.DataSchema = u
	default:
		attr := name[len(headerPrefix):]
		if !isAttributeName(attr) {
			return unreadable("header %q: want lower-case letters and digits after %s", clip(name), headerPrefix)
		}
		if c.Extensions == nil {
			c.Extensions = make(map[string]any, 1)
		}
		c.Extensions[attr] = v
	}
	return nil
}

func decodeStructured(ct string, data []byte) (cloudevents.Event, error) {
	media, _, _ := strings.Cut(ct, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	if media != structured && media != structured+"+json" {
		return cloudevents.Event{}, unreadable("content type %q: want %s+json", clip(ct), structured)
	}
	if !utf8.Valid(data) {
		return cloudevents.Event{}, unreadable("the structured event %w", errNotUTF8)
	}
	var e cloudevents.Event
	if err := json.Unmarshal(data, &e); err != nil {
		return cloudevents.Event{}, unreadable("the structured event: %w", err)
	}
	c, ok := e.Context.(*cloudevents.EventContextV1)
	if !ok || c == nil {
		return cloudevents.Event{}, unreadable("specversion of the structured event: want %s", specVersion)
	}
	if err := e.Validate(); err != nil {
		return cloudevents.Event{}, unreadable("the structured event: %w", err)
	}
	return e, nil
}

func unreadable(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnreadable, fmt.Errorf(format, args...))
}

func contentType(h nats.Header) string {
	if v := h[plainContentType]; len(v) > 0 {
		return v[0]
	}
	if v := h["Content-Type"]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func isStructured(ct string) bool {
	return len(ct) >= len(structured) && strings.EqualFold(ct[:len(structured)], structured)
}

func isText(ct string) bool {
	return ct == mediaJSON || strings.HasPrefix(ct, "text/") || isJSON(ct)
}

func isJSON(ct string) bool {
	media, _, _ := strings.Cut(ct, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media == mediaJSON || media == "text/json" || strings.HasSuffix(media, "+json")
}

func isAttributeName(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

func lowerNames(h nats.Header) (nats.Header, error) {
	lower := make(nats.Header, len(h))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		l := strings.ToLower(name)
		if _, twice := lower[l]; twice && strings.HasPrefix(l, headerPrefix) {
			return nil, unreadable("header %q is duplicated, in different case", clip(l))
		}
		lower[l] = h[name]
	}
	return lower, nil
}

// clip shortens external input for error texts.
func clip(s string) string {
	const limit = 100
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "..."
}

// sourceCache caches parsed sources: there are only a few, and parsing a URL is the most expensive part of decoding.
type sourceCache struct {
	m sync.Map
	n atomic.Int32
}

const maxSources = 1024

var sources sourceCache

func (s *sourceCache) parse(v string) (types.URIRef, bool) {
	if r, ok := s.m.Load(v); ok {
		return r.(types.URIRef), true
	}
	r := types.ParseURIRef(v)
	if r == nil {
		return types.URIRef{}, false
	}
	if s.n.Load() < maxSources {
		s.n.Add(1)
		s.m.Store(strings.Clone(v), *r)
	}
	return *r, true
}
