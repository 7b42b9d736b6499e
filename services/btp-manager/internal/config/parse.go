package config

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Flags adds a flag for each setting. Its default is the value in c, which parsing changes. Call Validate afterwards.
func (c *Config) Flags(fs *flag.FlagSet) {
	for _, s := range table() {
		usage := strings.ReplaceAll(fmt.Sprintf("%s Want %s.", s.Meaning, s.Allowed), "`", "")
		switch v := s.field(c).(type) {
		case *time.Duration:
			fs.DurationVar(v, s.Flag, *v, usage)
		case *bool:
			fs.BoolVar(v, s.Flag, *v, usage)
		case *string:
			fs.StringVar(v, s.Flag, *v, usage)
		}
	}
}

// retired returns the obsolete keys of the original manager, each with the reason.
func retired() map[string]string {
	const builtIn = "the chart is part of the program"
	return map[string]string{
		"ChartPath": builtIn, "ResourcesPath": builtIn, "ManagerResourcesPath": builtIn,
		"DeploymentName":      "the chart names its objects",
		"RsaKeyBits":          "the keys of certificates are of the curve P-256",
		"StatusUpdateTimeout": "the status is patched once", "StatusUpdateCheckInterval": "the status is patched once",
		"ProbeInterval": "there is no probe",
	}
}

// With overrides c with the data of the ConfigMap and returns the result. If a key is unknown or cannot change at run time, or a value is
// invalid, it returns c unchanged and an InvalidError for each problem, joined and sorted by key.
func (c Config) With(data map[string]string) (Config, error) {
	entries := make(map[string]entry)
	for _, s := range table() {
		entries[s.Key] = s
	}
	next := c
	var all []error
	for _, key := range slices.Sorted(maps.Keys(data)) {
		s, known := entries[key]
		reason, gone := retired()[key]
		switch {
		case gone:
			all = append(all, &InvalidError{key, "is not a setting of this manager: " + reason, "no such key"})
		case !known:
			all = append(all, &InvalidError{quote(key), "is not a setting", "one of " + strings.Join(changeable(), ", ")})
		case s.FlagOnly:
			all = append(all, &InvalidError{key, "cannot change at run time", "the flag --" + s.Flag + " of the manager instead"})
		default:
			if err := s.parse(&next, data[key]); err != nil {
				all = append(all, err)
			}
		}
	}
	if len(all) == 0 {
		all = append(all, next.Validate())
	}
	if err := errors.Join(all...); err != nil {
		return c, err
	}
	return next, nil
}

// changeable returns the keys that are allowed in the ConfigMap.
func changeable() []string {
	var keys []string
	for _, s := range table() {
		if !s.FlagOnly {
			keys = append(keys, s.Key)
		}
	}
	return keys
}

// parse sets the field from a value of the ConfigMap. It trims white space, because block scalars of YAML end with a line break.
func (e entry) parse(c *Config, value string) error {
	value = strings.TrimSpace(value)
	switch v := e.field(c).(type) {
	case *time.Duration:
		d, err := time.ParseDuration(value)
		if err != nil {
			return &InvalidError{e.Key, quote(value) + " is not a duration", e.Allowed + ", such as 90s or 1h30m"}
		}
		*v = d
	case *bool:
		if value != "true" && value != "false" {
			return &InvalidError{e.Key, quote(value) + " is not a bool", e.Allowed}
		}
		*v = value == "true"
	}
	if problem := e.problem(c); problem != "" {
		return &InvalidError{e.Key, problem, e.Allowed}
	}
	return nil
}
