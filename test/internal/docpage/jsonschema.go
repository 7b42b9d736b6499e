package docpage

import (
	"slices"
	"strings"
)

// typeOf describes what values a schema allows; definitions that have fields are linked.
func typeOf(schema node) string {
	s := schema.resolved()
	if !s.there() {
		return "any JSON"
	}
	if s.name != "" && (s.get("properties").there() || s.get("allOf").there()) {
		return "[" + s.name + "](" + anchor(s.name) + ")"
	}
	if values := s.get("enum").texts(); len(values) > 0 {
		for i := range values {
			values[i] = "`" + values[i] + "`"
		}
		return strings.Join(values, ", ")
	}
	if value := s.get("const").text(); value != "" {
		return "`" + value + "`"
	}
	for _, choice := range []string{"oneOf", "anyOf"} {
		if choices := s.get(choice).items(); len(choices) > 0 {
			types := make([]string, len(choices))
			for i := range choices {
				types[i] = typeOf(choices[i])
			}
			return strings.Join(types, " or ")
		}
	}
	names := s.get("type").texts()
	if one := s.get("type").text(); one != "" {
		names = []string{one}
	}
	for i, name := range names {
		switch {
		case name == "array":
			names[i] = "list of " + typeOf(s.get("items"))
		case name == "object" && s.get("additionalProperties").items() == nil && s.get("additionalProperties", "type").there():
			names[i] = "object of " + typeOf(s.get("additionalProperties"))
		}
	}
	text := strings.Join(names, " or ")
	if text == "" {
		text = "any JSON"
	}
	if format := s.get("format").text(); format != "" {
		text += " (" + format + ")"
	}
	return text + limits(s)
}

// limits are the bounds of a schema.
func limits(s node) string {
	var out []string
	for _, l := range [][2]string{
		{"minimum", "at least "},
		{"maximum", "at most "},
		{"minLength", "at least that many characters: "},
		{"maxLength", "at most that many characters: "},
		{"minItems", "entries, at least: "},
		{"maxItems", "entries, at most: "},
		{"default", "default "},
	} {
		if v := s.get(l[0]).text(); v != "" {
			out = append(out, l[1]+v)
		}
	}
	if v := s.get("pattern").text(); v != "" {
		out = append(out, "matches `"+v+"`")
	}
	if len(out) == 0 {
		return ""
	}
	return "; " + strings.Join(out, ", ")
}

// field is a member of an object.
type field struct {
	name, kind, about string
	required          bool
}

// fieldsOf lists the members of an object, also those of the schemas that it is made of.
func fieldsOf(schema node) []field {
	s := schema.resolved()
	var out []field
	for _, part := range s.get("allOf").items() {
		out = append(out, fieldsOf(part)...)
	}
	required := s.get("required").texts()
	names, schemas := s.get("properties").members()
	for i, name := range names {
		out = append(out, field{
			name: name, kind: typeOf(schemas[i]), about: about(schemas[i]), required: slices.Contains(required, name),
		})
	}
	for i := range out {
		out[i].required = out[i].required || slices.Contains(required, out[i].name)
	}
	return out
}

// about is the description beside a reference, else that of what is referred to, unless that has a heading of its own.
func about(schema node) string {
	if own := schema.raw("description"); own.there() {
		return own.Value
	}
	s := schema.resolved()
	if s.name != "" && s.get("properties").there() {
		return ""
	}
	return s.get("description").text()
}

// object writes the fields of a schema as a table.
func (p *page) object(schema node) {
	fields := fieldsOf(schema)
	if len(fields) == 0 {
		return
	}
	p.line("\n| Field | Value | Meaning |\n|---|---|---|")
	for _, f := range fields {
		name := "`" + f.name + "`"
		if f.required {
			name += " *"
		}
		p.line("| %s | %s | %s |", name, cell(f.kind), cell(f.about))
	}
}

// inner lists the definitions with fields that a schema leads to, by name, in the order in which they are met.
func inner(schema node, seen map[string]node, order *[]string) {
	s := schema.resolved()
	if !s.there() {
		return
	}
	if s.name != "" && (s.get("properties").there() || s.get("allOf").there()) {
		if _, known := seen[s.name]; known {
			return
		}
		seen[s.name] = s
		*order = append(*order, s.name)
	}
	_, properties := s.get("properties").members()
	for _, part := range slices.Concat(properties, s.get("allOf").items(), s.get("oneOf").items(), s.get("anyOf").items()) {
		inner(part, seen, order)
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if part := s.get(key); part.there() {
			inner(part, seen, order)
		}
	}
}
