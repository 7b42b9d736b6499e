package simulation_test

// shrink reduces a schedule to a smaller one that violates the same invariant, with as few
// choices and as few faults as possible.
func (r *runner) shrink(s *schedule, broken *violation) *schedule {
	scratch := &runner{apply: r.apply, bug: r.bug, pools: r.pools, counts: counts{ends: r.counts.ends}, metrics: r.metrics}
	defer scratch.threads.close()
	best := s
	breaks := func(candidate *schedule) bool {
		v := scratch.run(candidate, nil)
		if v == nil || v.format != broken.format {
			return false
		}
		best = candidate
		return true
	}
	for again := true; again; {
		again = false
		for n := (len(best.choices) + 1) / 2; n > 0; n /= 2 {
			for from := 0; from < len(best.choices); {
				without := *best
				without.choices = append(append([]choice(nil), best.choices[:from]...), best.choices[min(from+n, len(best.choices)):]...)
				if breaks(&without) {
					again = true
				} else {
					from += n
				}
			}
		}
		for i := range best.setup {
			for _, smaller := range []uint16{0, 1} {
				if best.setup[i] <= smaller {
					break
				}
				simpler := best.clone()
				simpler.setup[i] = smaller
				if breaks(simpler) {
					again = true
				}
			}
		}
		for i := range best.choices {
			for field := range 4 {
				for _, smaller := range []uint16{0, 1, 2} {
					if c := best.choices[i]; *c.argument(field) <= smaller {
						break
					}
					simpler := best.clone()
					*simpler.choices[i].argument(field) = smaller
					if breaks(simpler) {
						again = true
						break
					}
				}
			}
		}
	}
	return best
}

func (c *choice) argument(n int) *uint16 { return [...]*uint16{&c.a, &c.b, &c.c, &c.d}[n] }
