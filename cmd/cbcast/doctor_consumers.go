package main

// consumers says which programs up runs here, and whether their settings can work. It
// connects to nothing.
func (d *doctor) consumers() {
	what := map[string][2]string{ // what it is for, and what it needs
		"metrics": {"counts for Prometheus, at the relay's /metrics", "CBCAST_UP_WITH"},
		"notify":  {"tells people of runs", "CBCAST_NOTIFY_RULES"},
		"archive": {"keeps every message", "CBCAST_ARCHIVE_DEST"},
		traceName: {"sends traces", "CBCAST_TRACE_ENDPOINT"},
	}
	for _, k := range consumerKinds() {
		is, needs := what[k.name][0], what[k.name][1]
		if !k.wanted(&d.a.cfg) && !d.a.upWith(k) {
			d.ok(k.name, "not set up: %s where %s is set", is, needs)
			continue
		}
		if k.check != nil {
			if err := k.check(d.a); err != nil {
				d.fail(k.name, "cbcast up and cbcast "+k.name+" end with exit code 2; correct the settings (docs/"+docOf(k.name)+".md)", "%v", brief(err))
				continue
			}
		}
		if !d.a.upWith(k) {
			d.ok(k.name, "its settings are right; cbcast up does not run it (CBCAST_UP_WITH), cbcast %s does", k.name)
			continue
		}
		d.ok(k.name, "a part of cbcast up: %s", is)
	}
}

func docOf(name string) string {
	if name == traceName {
		return "traces"
	}
	return name
}
