package kubernetes

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// check validates a new object, or a changed one against its previous version, like the API server: its metadata, the rules of its kind, and
// its schema.
func (c *collection) check(body, old map[string]any) error {
	meta, err := objectMeta(body)
	if err != nil {
		return err
	}
	at := field.NewPath("metadata")
	problems := apivalidation.ValidateObjectMeta(&meta, c.Namespaced, c.nameRule(), at)
	if old != nil {
		former, err := objectMeta(old)
		if err != nil {
			return err
		}
		problems = append(problems, apivalidation.ValidateObjectMetaUpdate(&meta, &former, at)...)
	}
	problems = append(problems, c.checkData(body)...)
	if old != nil {
		problems = append(problems, c.checkImmutable(body, old)...)
	}
	if len(problems) > 0 {
		e := c.about(http.StatusUnprocessableEntity, "Invalid", meta.Name, "is invalid: "+problems.ToAggregate().Error())
		// Omit the values.
		parts := make([]string, 0, len(problems))
		for _, p := range problems {
			parts = append(parts, p.Field+": "+string(p.Type))
		}
		e.breach = strings.Join(parts, "; ")
		return e
	}
	if c.Schema == nil {
		return nil
	}
	raw, err := encodeObject(body)
	if err != nil {
		return err
	}
	if err := c.Schema.Check(raw); err != nil {
		e := c.about(http.StatusUnprocessableEntity, "Invalid", meta.Name, "is invalid: "+err.Error())
		e.breach = err.Error()
		return e
	}
	return nil
}

func objectMeta(body map[string]any) (metav1.ObjectMeta, error) {
	var meta metav1.ObjectMeta
	raw, err := json.Marshal(body["metadata"])
	if err == nil {
		err = json.Unmarshal(raw, &meta)
	}
	if err != nil {
		return meta, badRequest("metadata has a member of the wrong type")
	}
	return meta, nil
}

// pathSegment accepts what can be a segment of a path, or the beginning of one.
func pathSegment(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}

func (c *collection) nameRule() apivalidation.ValidateNameFunc {
	switch {
	case c.Plural == "namespaces":
		return apivalidation.ValidateNamespaceName
	case c.Group == "rbac.authorization.k8s.io":
		return pathSegment
	}
	return apivalidation.NameIsDNSSubdomain
}

// maxData limits the content of a Secret or a ConfigMap, in bytes.
const maxData = 1 << 20

// checkData validates the keys and the size of a Secret or a ConfigMap.
func (c *collection) checkData(body map[string]any) field.ErrorList {
	if c.Group != "" || (c.Kind != "Secret" && c.Kind != "ConfigMap") {
		return nil
	}
	var problems field.ErrorList
	size := 0
	at := field.NewPath("data")
	data, _ := body["data"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(data)) {
		text, _ := data[key].(string)
		for _, reason := range validation.IsConfigMapKey(key) {
			problems = append(problems, field.Invalid(at.Key(key), key, reason))
		}
		size += len(text)
	}
	if size > maxData {
		problems = append(problems, field.TooLong(at, "", maxData))
	}
	return problems
}

// checkImmutable rejects changes of immutable data in a Secret or a ConfigMap.
func (c *collection) checkImmutable(body, old map[string]any) field.ErrorList {
	var problems field.ErrorList
	if c.Group != "" || (c.Kind != "Secret" && c.Kind != "ConfigMap") {
		return nil
	}
	if c.Kind == "Secret" && body["type"] != old["type"] {
		problems = append(problems, field.Invalid(field.NewPath("type"), body["type"], "field is immutable"))
	}
	if old["immutable"] != true {
		return problems
	}
	const frozen = "field is immutable when `immutable` is set"
	if body["immutable"] != true {
		problems = append(problems, field.Forbidden(field.NewPath("immutable"), frozen))
	}
	if !reflect.DeepEqual(body["data"], old["data"]) {
		problems = append(problems, field.Forbidden(field.NewPath("data"), frozen))
	}
	return problems
}
