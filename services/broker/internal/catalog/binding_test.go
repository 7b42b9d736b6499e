package catalog

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func bindings(plans ...string) Bindings {
	return Bindings{
		Plans: plans, Expiration: 10 * time.Minute, MinExpiration: 10 * time.Minute, MaxExpiration: 2 * time.Hour,
	}
}

func TestCatalog_BindablePlans_AreMarked(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.Bindings = bindings("azure", "aws")
	cfg.Bindings.Rotatable = []string{"azure", "gcp"}
	c, err := New(cfg)
	require.NoError(t, err)
	s := c.Document("").Services[0]
	if !s.Bindable || !s.BindingsRetrievable {
		t.Errorf("the offering has bindable %t and bindings_retrievable %t", s.Bindable, s.BindingsRetrievable)
	}
	for i := range s.Plans {
		p := &s.Plans[i]
		bindable, rotatable := p.Name == "azure" || p.Name == "aws", p.Name == "azure"
		if s.IsBindable(p) != bindable || c.IsBindable(p.ID) != bindable || (p.Schemas.ServiceBinding != nil) != bindable {
			t.Errorf("plan %s: bindable %t, with a schema %t", p.Name, s.IsBindable(p), p.Schemas.ServiceBinding != nil)
		}
		if (p.BindingRotatable != nil && *p.BindingRotatable) != rotatable || c.IsBindingRotatable(p.ID) != rotatable {
			t.Errorf("plan %s: its bindings are rotatable %v", p.Name, p.BindingRotatable)
		}
	}
}

func TestBindingExpiration_Parameters_AreValidated(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.Bindings = bindings("azure")
	c, err := New(cfg)
	require.NoError(t, err)
	for parameters, want := range map[string]struct {
		seconds int
		given   bool
		problem string
	}{
		``:                                       {seconds: 600},
		`{}`:                                     {seconds: 600},
		`{"expiration_seconds": 600}`:            {seconds: 600, given: true},
		`{"expiration_seconds": 7.2e3}`:          {seconds: 7200, given: true},
		`{"expiration_seconds": 599}`:            {problem: "parameters/expiration_seconds must be at least 600"},
		`{"expiration_seconds": 7201}`:           {problem: "parameters/expiration_seconds must be at most 7200"},
		`{"expiration_seconds": 600.5}`:          {problem: "parameters/expiration_seconds must be of type integer"},
		`{"expiration_seconds": "600"}`:          {problem: "parameters/expiration_seconds must be of type integer"},
		`{"expiration_seconds": null}`:           {problem: "parameters/expiration_seconds must be of type integer"},
		`{"expirationSeconds": 900, "a/b": "x"}`: {problem: "parameters/a~1b is not a parameter of bindings"},
		`{"expiration_seconds": 1e999}`:          {problem: "parameters/expiration_seconds must be a number"},
	} {
		got, given, err := c.BindingExpiration(json.RawMessage(parameters))
		if want.problem != "" {
			if err == nil || !strings.Contains(err.Error(), want.problem) {
				t.Errorf("%s: the error is %v, want %q", parameters, err, want.problem)
			}
			continue
		}
		if err != nil || got != time.Duration(want.seconds)*time.Second || given != want.given {
			t.Errorf("%s: %s, given %t, %v", parameters, got, given, err)
		}
	}
}
