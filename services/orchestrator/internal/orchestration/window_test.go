package orchestration

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	moment, err := time.Parse("Mon 2006-01-02 15:04 -0700", text)
	require.NoError(t, err)
	return moment
}

func TestWindow_Next(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		window, now, begin, end string
	}{
		"ahead today":                      {`{"begin":"220000+0000","end":"230000+0000"}`, "Sat 2026-11-21 08:00 +0000", "Sat 2026-11-21 22:00 +0000", "Sat 2026-11-21 23:00 +0000"},
		"open now":                         {`{"begin":"220000+0000","end":"230000+0000"}`, "Sat 2026-11-21 22:30 +0000", "Sat 2026-11-21 22:00 +0000", "Sat 2026-11-21 23:00 +0000"},
		"its beginning is in it":           {`{"begin":"220000+0000","end":"230000+0000"}`, "Sat 2026-11-21 22:00 +0000", "Sat 2026-11-21 22:00 +0000", "Sat 2026-11-21 23:00 +0000"},
		"its end is not":                   {`{"begin":"220000+0000","end":"230000+0000"}`, "Sat 2026-11-21 23:00 +0000", "Sun 2026-11-22 22:00 +0000", "Sun 2026-11-22 23:00 +0000"},
		"over midnight, before it":         {`{"begin":"220000+0000","end":"060000+0000"}`, "Sat 2026-11-21 23:00 +0000", "Sat 2026-11-21 22:00 +0000", "Sun 2026-11-22 06:00 +0000"},
		"over midnight, after it":          {`{"begin":"220000+0000","end":"060000+0000"}`, "Sun 2026-11-22 05:00 +0000", "Sat 2026-11-21 22:00 +0000", "Sun 2026-11-22 06:00 +0000"},
		"over midnight, missed":            {`{"begin":"220000+0000","end":"060000+0000"}`, "Sun 2026-11-22 07:00 +0000", "Sun 2026-11-22 22:00 +0000", "Mon 2026-11-23 06:00 +0000"},
		"the whole day":                    {`{"begin":"030000+0000","end":"030000+0000"}`, "Sat 2026-11-21 01:00 +0000", "Fri 2026-11-20 03:00 +0000", "Sat 2026-11-21 03:00 +0000"},
		"another zone":                     {`{"begin":"220000-0800","end":"230000-0800"}`, "Sat 2026-11-21 08:00 +0000", "Sun 2026-11-22 06:00 +0000", "Sun 2026-11-22 07:00 +0000"},
		"two zones":                        {`{"begin":"220000+0100","end":"230000+0000"}`, "Sat 2026-11-21 08:00 +0000", "Sat 2026-11-21 21:00 +0000", "Sat 2026-11-21 23:00 +0000"},
		"now in another zone":              {`{"begin":"220000+0000","end":"230000+0000"}`, "Sun 2026-11-22 07:30 +0900", "Sat 2026-11-21 22:00 +0000", "Sat 2026-11-21 23:00 +0000"},
		"an allowed day":                   {`{"days":["Sat"],"begin":"220000+0000","end":"230000+0000"}`, "Sat 2026-11-21 08:00 +0000", "Sat 2026-11-21 22:00 +0000", "Sat 2026-11-21 23:00 +0000"},
		"a day ahead":                      {`{"days":["Tue","Thu"],"begin":"220000+0000","end":"230000+0000"}`, "Tue 2026-11-24 23:30 +0000", "Thu 2026-11-26 22:00 +0000", "Thu 2026-11-26 23:00 +0000"},
		"missed, a week ahead":             {`{"days":["Sat"],"begin":"220000+0000","end":"230000+0000"}`, "Sat 2026-11-21 23:30 +0000", "Sat 2026-11-28 22:00 +0000", "Sat 2026-11-28 23:00 +0000"},
		"the day is that of its beginning": {`{"days":["Sat"],"begin":"220000+0000","end":"060000+0000"}`, "Sun 2026-11-22 05:00 +0000", "Sat 2026-11-21 22:00 +0000", "Sun 2026-11-22 06:00 +0000"},
		"not that of its end":              {`{"days":["Sun"],"begin":"220000+0000","end":"060000+0000"}`, "Sun 2026-11-22 05:00 +0000", "Sun 2026-11-22 22:00 +0000", "Mon 2026-11-23 06:00 +0000"},
		"the day is that in its zone":      {`{"days":["Sat"],"begin":"220000-0800","end":"230000-0800"}`, "Sat 2026-11-21 08:00 +0000", "Sun 2026-11-22 06:00 +0000", "Sun 2026-11-22 07:00 +0000"},
		"the current day in its zone":      {`{"days":["Fri"],"begin":"220000-1200","end":"230000-1200"}`, "Sat 2026-11-21 10:30 +0000", "Sat 2026-11-21 10:00 +0000", "Sat 2026-11-21 11:00 +0000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w Window
			require.NoError(t, json.Unmarshal([]byte(c.window), &w))
			begin, end := w.Next(at(t, c.now))
			if !begin.Equal(at(t, c.begin)) || !end.Equal(at(t, c.end)) {
				t.Errorf("window from %s to %s, want %s to %s", begin, end, c.begin, c.end)
			}
		})
	}
}

func TestWindow_JSON_RoundTrips(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"begin":"220000+0000","end":"010203-0730"}`, `{"days":["Mon","Sun"],"begin":"000000+1400","end":"235959-1200"}`,
	} {
		var w Window
		require.NoError(t, json.Unmarshal([]byte(text), &w))
		if again, err := json.Marshal(w); err != nil || string(again) != text {
			t.Errorf("%s becomes %s, %v", text, again, err)
		}
	}
}

func TestShootWindow_Invalid_IsRejected(t *testing.T) {
	t.Parallel()
	for field, w := range map[string]event.MaintenanceWindow{
		"begin": {Begin: "22:00", End: "230000+0000"}, "end": {Begin: "220000+0000", End: ""},
	} {
		if _, err := ShootWindow(w); err == nil || !strings.HasPrefix(err.Error(), field+": ") {
			t.Errorf("%+v: %v", w, err)
		}
	}
}

func FuzzTimeOfDay(f *testing.F) {
	for _, seed := range []string{"220000+0000", "235959-1200", "000000+1400", "", "2200", "220000Z", "240000+0000"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		read, err := ParseTimeOfDay(text)
		if err != nil {
			return
		}
		w := Window{Begin: read, End: read}
		now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
		begin, end := w.Next(now)
		if !end.After(now) || end.Sub(begin) <= 0 || end.Sub(begin) > day || begin.Before(now.Add(-day)) || begin.After(now.Add(day)) {
			t.Errorf("%q: window from %s to %s", text, begin, end)
		}
		again, err := ParseTimeOfDay(read.String())
		if err != nil || again != read {
			t.Errorf("%q is written %q, which is read as %v, %v", text, read.String(), again, err)
		}
	})
}
