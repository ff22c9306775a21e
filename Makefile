# What one does with this repository, one word each. `make` alone lists them.
#
# Needed on the machine: Rust (rustup.rs; 1.89 or later), a C linker, Python 3.10 with venv.
# Everything else is fetched by cargo and pip into target/ and .venv/; the CMake that builds libhdf5 too
# (.cargo/config.toml names it), since that of most distributions is too old.

CARGO ?= cargo
PYTHON ?= python3
VENV   := .venv
PYTEST := $(VENV)/bin/python -m pytest tests/python --durations=15 --durations-min=5
# Runs tests, and those that fail once more. As root, each worker has a network namespace of its own.
TWICE  := tests/python/twice
# Tests of the commands that show most for their time.
QUICK  := account architecture convert crash first_steps lost_books network places rates refusals samples series
DEBUG  := target/debug/fullbore
RELEASE := target/release/fullbore

.DEFAULT_GOAL := help
.PHONY: help demo test check soak soak-panda soak-record long bench bench-session bench-replay bench-captures bench-panda bench-pattern bench-versions bench-transfer bench-objects bench-disk docs fuzz binary release rust bench-spectrum bench-tdms bench-digital-rf bench-playback bench-python wheel bench-circular bench-station bench-dask

help:            ## This list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: release $(VENV)/tests ## The main job in under a minute: record, verify and play back eight streams of a real sample.
	$(RELEASE) demo --sample "$$($(VENV)/bin/python -c 'import baseband.data; print(baseband.data.SAMPLE_VDIF)')" $(DEMO)

# The commands are tested with the binary that `cargo test` builds for its own tests of them, so there is one build.
test: rust $(VENV)/tests $(VENV)/s3s-fs $(VENV)/azurite ## All tests but the long ones.
	$(CARGO) test --workspace --locked
	FULLBORE=$(DEBUG) $(TWICE) beside $(VENV)/bin/python "not slow and not alone"
	FULLBORE=$(DEBUG) $(TWICE) alone $(VENV)/bin/python "not slow and alone"

check: rust $(VENV)/tests ## A few minutes, before every commit: format, lints, unit tests, quick tests of the commands.
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) check --manifest-path fuzz/Cargo.toml --locked
	$(CARGO) test --workspace --locked --tests
	FULLBORE=$(DEBUG) $(TWICE) beside $(VENV)/bin/python "not slow and not alone" $(QUICK:%=tests/python/test_%.py)

soak: long
long: release wheel $(VENV)/tests ## Hours' worth of bad days: 100 kills, many seeds, the release build, and a session at full rate.
	PROPTEST_CASES=4096 $(CARGO) test --workspace --locked
	FULLBORE=$(RELEASE) FULLBORE_KILLS=100 FULLBORE_SEEDS=100 $(PYTEST) -rs
	$(PYTHON) benches/session.py

fuzz: rust       ## Every fuzz target for FUZZ_SECONDS (default 60) each, as many at a time as there are cores.
	@command -v cargo-fuzz >/dev/null || $(CARGO) install --locked --debug cargo-fuzz
	RUSTC_BOOTSTRAP=1 $(CARGO) fuzz build --sanitizer none
	@ls fuzz/fuzz_targets | sed 's/\.rs$$//' | xargs -P "$$(nproc)" -I TARGET sh -c '\
	    mkdir -p target/fuzz && log=target/fuzz/TARGET.log && echo "fuzz: TARGET" && \
	    RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run TARGET --sanitizer none -- \
	        -max_total_time=$${FUZZ_SECONDS:-60} -print_final_stats=0 >$$log 2>&1 || { cat $$log; exit 255; }'

bench: release   ## Lossless rate and CPU per GB against the peers: a table, and JSON in benches/results/.
	$(CARGO) build --release --locked -p fullbore-store --example store_rate
	$(PYTHON) benches/record.py $(BENCH)

bench-session: release ## A session of scans of 40 s with pauses of 20 s, in 8 and 16 streams: the rate at which no frame is lost and each is verified in its pause.
	$(PYTHON) benches/session.py $(BENCH)

bench-replay: release ## How exactly eight streams are played back.
	$(PYTHON) benches/replay.py

bench-captures: release ## How fast a packet capture is recorded, beside programs that read it.
	$(PYTHON) benches/captures.py $(BENCH)

bench-spectrum: release $(VENV)/tests ## Spectra of 2-bit VDIF against baseband and numpy.
	$(VENV)/bin/python benches/spectrum.py $(BENCH)

bench-tdms: $(VENV)/tests ## TDMS files beside npTDMS.
	mkdir -p target/bench && $(VENV)/bin/python benches/tdms.py target/bench $(BENCH)

bench-digital-rf: release $(VENV)/tests ## Channels of Digital RF beside digital_rf.
	mkdir -p target/bench && FULLBORE=$(RELEASE) $(VENV)/bin/python benches/digital_rf_rate.py target/bench $(BENCH)

bench-playback: release ## Playback at shares of the disk's read rate, and how far streams are from being in step.
	$(PYTHON) benches/playback.py $(BENCH)

bench-circular: release ## A circular recording with random triggers that overlap, on disks and in memory: each kept scan must be whole.
	$(PYTHON) benches/circular.py $(BENCH)

bench-station: release $(VENV)/tests ## What the daemon, five browsers at the page Now, two at the page Stream and a scraper cost a recording: CPU seconds per GB.
	$(VENV)/bin/python benches/station.py $(BENCH)

bench-panda: release $(VENV)/tests ## A PandA into HDF5 against the client its users have.
	$(VENV)/bin/python benches/panda.py $(BENCH)

soak-panda: release $(VENV)/tests ## A PandA for an hour (FULLBORE_SOAK_SECONDS): memory stays flat, nothing is lost.
	$(VENV)/bin/python benches/panda_soak.py $(BENCH)

soak-record: release ## VDIF streams for an hour (FULLBORE_SOAK_SECONDS): the account is the truth, memory stays flat.
	$(PYTHON) benches/soak.py $(BENCH)

bench-python: rust $(VENV)/tests ## Samples in Python beside baseband: rate of one core.
	$(CARGO) build --release --locked -p fullbore -p fullbore-python
	$(VENV)/bin/python benches/python_samples.py $(BENCH)

bench-dask: rust $(VENV)/tests ## The spectra of a session of 480 streams with Dask: one worker, two, and one of two killed midway.
	$(CARGO) build --release --locked -p fullbore -p fullbore-python
	$(VENV)/bin/python benches/dask.py $(BENCH)

bench-versions: $(VENV)/tests ## The CPU time and memory of two builds, OLD=binary NEW=binary, job by job in turn.
	$(PYTHON) benches/versions.py "$(OLD)" "$(NEW)" $(BENCH)

bench-transfer: release ## A scan to another site beside scp, rsync and iperf3: rate and CPU time.
	$(PYTHON) benches/transfer.py $(BENCH)

bench-objects: release $(VENV)/tests ## A scan to an S3 server beside rclone, boto3 and cp: rate and CPU time.
	$(CARGO) install --quiet --locked --features binary --root target/s3s-fs --target-dir target/s3s-fs/build s3s-fs@0.13.0-alpha.3
	$(VENV)/bin/python benches/objects.py $(BENCH)

bench-pattern: rust ## How fast one core makes and checks patterns, 15 GB/s asked for: a table, and JSON in benches/results/.
	$(CARGO) run --release --locked -q -p fullbore-core --example pattern_rate -- --require 15 --output benches/results/pattern.json

bench-disk: release ## Disks beside fio on XFS, ext4, btrfs and tmpfs, and predicted rings beside the truth (as root).
	$(PYTHON) benches/disk.py
	$(PYTHON) benches/stalls.py

wheel: release $(VENV)/maturin ## The Python package with the command `fullbore` in it, into target/wheels.
	mkdir -p target/wheel-data/scripts && cp $(RELEASE) target/wheel-data/scripts/
	$(VENV)/bin/python -m maturin build --release --locked --manifest-path python/Cargo.toml --out target/wheels

docs: rust $(VENV)/docs ## The documentation into target/docs and target/doc; warnings are errors.
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked
	$(VENV)/bin/python -m sphinx -W --keep-going -q docs target/docs
	@echo "target/docs/index.html"

binary: rust
	$(CARGO) build --locked -p fullbore

release: rust
	$(CARGO) build --release --locked -p fullbore

rust: $(VENV)/cmake
	@command -v $(CARGO) >/dev/null || { \
	    echo "cargo is not here: install Rust 1.89 or later as rustup.rs says, then call make again"; exit 1; }
	@command -v cc >/dev/null || { \
	    echo "no C linker (cc) is here: install gcc, on Debian with: apt install build-essential"; exit 1; }

$(VENV)/bin/python:
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	    echo "Python's venv is not here: on Debian, apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/cmake: | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check 'cmake>=3.26,<5'
	@touch $@

$(VENV)/tests: tests/python/requirements.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# An S3 server for tests, built within a minute. Without it, those tests use moto alone.
$(VENV)/s3s-fs: | $(VENV)/bin/python rust
	@$(CARGO) install --quiet --locked --debug --features binary --root $(VENV) --no-track \
	    s3s-fs@0.13.0-alpha.3 || echo "s3s-fs could not be built: tests of object stores use moto alone"
	@touch $@

# Microsoft's emulator of Azure Blob Storage, for tests. Without it, the test of `az://` is skipped.
$(VENV)/azurite: | $(VENV)/bin/python
	@npm install --silent --no-audit --no-fund --prefix $@ azurite@3.37.0 || \
	    echo "azurite could not be installed with npm: the test of az:// is skipped"
	@mkdir -p $@

$(VENV)/maturin: | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check 'maturin>=1.9,<2'
	@touch $@

$(VENV)/docs: docs/requirements.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@
