package docpage

import (
	"encoding/json"
	"maps"
	"strconv"

	"github.com/kyma-project/keb/libs/process"
)

// object is a JSON object.
type object = map[string]any

// processSchema returns api/process.schema.json for the repository in root: the JSON Schema of a YAML document of an overlay or a process file.
func processSchema(root string) ([]byte, error) {
	s, err := readFormat(root)
	if err != nil {
		return nil, err
	}
	definitions := object{
		"duration": object{"type": "string", "pattern": `^\s*\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*\s*$`},
	}
	for _, t := range titles {
		definitions[t.of] = s.schema(t.of)
	}
	out, err := json.MarshalIndent(object{
		"$schema": "http://json-schema.org/draft-07/schema#",
		"$comment": "Generated from libs/process by go generate ./internal/docpage in test/; do not edit. " +
			"keb process check also checks what a schema cannot express.",
		"title":       "KEB overlay or process file",
		"type":        "object",
		"if":          object{"required": []string{"changes"}},
		"then":        ref(typeOverlay),
		"else":        ref(typeProcess),
		"definitions": definitions,
	}, "", "  ")
	return append(out, '\n'), err
}

func ref(name string) object { return object{"$ref": "#/definitions/" + name} }

// schema is the schema of a mapping.
func (s *format) schema(of string) object {
	properties, required := object{}, []string{}
	for _, m := range s.members(of) {
		value := m.schema()
		if m.List {
			value = object{"type": "array", "minItems": 1, "items": value}
		}
		// Draft 7 ignores what is beside $ref.
		described := object{"description": m.Text}
		if value["$ref"] != nil {
			described["allOf"] = []object{value}
		} else {
			maps.Copy(described, value)
		}
		if m.Default != "" {
			described["default"] = m.Default
			if number, err := strconv.ParseFloat(m.Default, 64); err == nil {
				described["default"] = number
			}
		}
		properties[m.Key] = described
		if m.Required {
			required = append(required, m.Key)
		}
	}
	text, _ := split(s.structs[of].text)
	schema := object{"type": "object", "description": text, "properties": properties, "additionalProperties": false}
	switch of {
	case typeChange:
		schema["minProperties"], schema["maxProperties"] = 1, 1
	case typeWait:
		schema["minProperties"] = 1
	case typeAdd, typeMove:
		schema["anyOf"] = []object{{"required": []string{"stage"}}, {"required": []string{"before"}}, {"required": []string{"after"}}}
	}
	if len(required) > 0 {
		schema["required"] = required
	}
	return schema
}

// schema is the schema of one value of a member.
func (m *Member) schema() object {
	switch {
	case len(m.Allowed) > 0:
		var names []string
		for _, v := range m.Allowed {
			names = append(names, v.Name)
		}
		return object{"enum": names}
	case m.Type == "time.Duration":
		return ref("duration")
	case m.Type == "float64":
		return object{"type": "number", "minimum": json.Number(m.Minimum), "maximum": json.Number(m.Maximum)}
	case m.Type == "string" && m.Format == "condition":
		return object{"type": "string", "minLength": 1}
	case m.Type == "string":
		return object{"type": "string", "pattern": process.NamePattern}
	}
	return ref(m.Type)
}
