package orchestration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// TimeOfDay is a time of day in a zone, written "150405-0700" (docs/contracts/gardener.md#shoots).
type TimeOfDay struct {
	// sinceMidnight is in the zone, which is offset east of UTC.
	sinceMidnight, offset time.Duration
}

const timeOfDay = "150405-0700"

// ParseTimeOfDay parses a time of day.
func ParseTimeOfDay(text string) (TimeOfDay, error) {
	t, err := time.Parse(timeOfDay, text)
	if err != nil {
		return TimeOfDay{}, fmt.Errorf("%.50q: must be a time of day with its zone, such as 220000+0000", text)
	}
	_, offset := t.Zone()
	hour, minute, second := t.Clock()
	return TimeOfDay{
		sinceMidnight: time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute + time.Duration(second)*time.Second,
		offset:        time.Duration(offset) * time.Second,
	}, nil
}

// zone returns the zone of the time.
func (t TimeOfDay) zone() *time.Location { return time.FixedZone("", int(t.offset/time.Second)) }

// on returns the time on the date of a moment in the zone, or some days later.
func (t TimeOfDay) on(moment time.Time, later int) time.Time {
	year, month, day := moment.In(t.zone()).Date()
	return time.Date(year, month, day+later, 0, 0, 0, 0, t.zone()).Add(t.sinceMidnight)
}

// String returns the form that ParseTimeOfDay reads.
func (t TimeOfDay) String() string { return t.on(time.Time{}, 0).Format(timeOfDay) }

// MarshalText returns String.
func (t TimeOfDay) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText calls ParseTimeOfDay.
func (t *TimeOfDay) UnmarshalText(text []byte) (err error) {
	*t, err = ParseTimeOfDay(string(text))
	return err
}

// Days contains days of the week, written "Mon" to "Sun"; none means every day.
type Days []time.Weekday

var dayNames = []string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}

// MarshalJSON writes the names of the days.
func (d Days) MarshalJSON() ([]byte, error) {
	names := make([]string, len(d))
	for i, day := range d {
		names[i] = dayNames[day]
	}
	return json.Marshal(names)
}

// UnmarshalJSON reads the names of the days.
func (d *Days) UnmarshalJSON(data []byte) error {
	var names []string
	if err := json.Unmarshal(data, &names); err != nil {
		return fmt.Errorf("days: %w", err)
	}
	parsed, err := parseDays(names)
	*d = parsed
	return err
}

func parseDays(names []string) (Days, error) {
	var d Days
	for _, name := range names {
		i := slices.Index(dayNames, name)
		if i < 0 {
			return nil, fmt.Errorf("days: %.20q is not a day; allowed are %s", name, strings.Join(dayNames, ", "))
		}
		d = append(d, time.Weekday(i))
	}
	return d, nil
}

// Window is a daily period in which a runtime may be disrupted. A window that ends before it begins spans midnight.
type Window struct {
	// Days are the days on which it may begin, in the zone of Begin.
	Days  Days      `json:"days,omitempty"`
	Begin TimeOfDay `json:"begin"`
	End   TimeOfDay `json:"end"`
}

// ShootWindow returns the window of a shoot, on every day.
func ShootWindow(w event.MaintenanceWindow) (Window, error) {
	begin, err := ParseTimeOfDay(w.Begin)
	if err != nil {
		return Window{}, fmt.Errorf("begin: %w", err)
	}
	end, err := ParseTimeOfDay(w.End)
	if err != nil {
		return Window{}, fmt.Errorf("end: %w", err)
	}
	return Window{Begin: begin, End: end}, nil
}

const day = 24 * time.Hour

// length returns the duration. A window that ends when it begins lasts the whole day.
func (w Window) length() time.Duration {
	length := (w.End.sinceMidnight - w.End.offset) - (w.Begin.sinceMidnight - w.Begin.offset)
	for length <= 0 {
		length += day
	}
	for length > day {
		length -= day
	}
	return length
}

// Next returns the first occurrence that has not ended at a moment. It may have begun.
func (w Window) Next(now time.Time) (begin, end time.Time) {
	// A window of a whole day may have begun yesterday; within a week, every day is covered.
	for later := -1; ; later++ {
		begin = w.Begin.on(now, later)
		if len(w.Days) > 0 && !slices.Contains(w.Days, begin.Weekday()) {
			continue
		}
		if end = begin.Add(w.length()); end.After(now) {
			return begin.UTC(), end.UTC()
		}
	}
}
