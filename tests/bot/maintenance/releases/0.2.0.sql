BEGIN TRANSACTION;
CREATE TABLE agent (
	name VARCHAR(40) NOT NULL, 
	owner VARCHAR(64) NOT NULL, 
	purpose VARCHAR(200) NOT NULL, 
	added_by VARCHAR(64) NOT NULL, 
	added_at BIGINT NOT NULL, 
	ends_at BIGINT NOT NULL, 
	confirmed_by VARCHAR(64), 
	confirmed_at BIGINT, 
	ended_at BIGINT, 
	paused_at BIGINT, 
	paused_by VARCHAR(64), 
	pause_reason TEXT, 
	resumed_at BIGINT, 
	mac VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_agent PRIMARY KEY (name)
);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE alert_answer (
	channel VARCHAR(64) NOT NULL, 
	ts VARCHAR(32) NOT NULL, 
	user VARCHAR(32) NOT NULL, 
	thread VARCHAR(32) NOT NULL, 
	person VARCHAR(64) NOT NULL, 
	hosts TEXT NOT NULL, 
	subject VARCHAR(32) NOT NULL, 
	plans TEXT NOT NULL, 
	runs TEXT NOT NULL, 
	claimed_at BIGINT NOT NULL, 
	due_at BIGINT NOT NULL, 
	attempts INTEGER NOT NULL, 
	posted VARCHAR(32), 
	CONSTRAINT pk_alert_answer PRIMARY KEY (channel, ts, user)
);
CREATE TABLE api_token (
	id INTEGER NOT NULL, 
	prefix VARCHAR(16) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	person VARCHAR(64) NOT NULL, 
	scopes VARCHAR(64) NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	created_at BIGINT NOT NULL, 
	expires_at BIGINT NOT NULL, 
	revoked_at BIGINT, 
	last_used_at BIGINT, 
	behalf VARCHAR(64), 
	confirmed_at BIGINT, 
	mac VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_api_token PRIMARY KEY (id), 
	CONSTRAINT uq_api_token_prefix UNIQUE (prefix)
);
CREATE TABLE ban (
	person VARCHAR(64) NOT NULL, 
	banned_by VARCHAR(64) NOT NULL, 
	banned_at BIGINT NOT NULL, 
	reason TEXT NOT NULL, 
	CONSTRAINT pk_ban PRIMARY KEY (person)
);
CREATE TABLE break_glass (
	run INTEGER NOT NULL, 
	person VARCHAR(64) NOT NULL, 
	reason TEXT NOT NULL, 
	requested_at BIGINT NOT NULL, 
	activated_at BIGINT, 
	active_until BIGINT, 
	factor VARCHAR(32) NOT NULL, 
	reviewed_at BIGINT, 
	reviewer VARCHAR(64) NOT NULL, 
	review TEXT NOT NULL, 
	CONSTRAINT pk_break_glass PRIMARY KEY (run), 
	CONSTRAINT fk_break_glass_run FOREIGN KEY(run) REFERENCES run (id)
);
CREATE TABLE claimed_groups (
	person VARCHAR(64) NOT NULL, 
	issuer VARCHAR(255) NOT NULL, 
	group_names TEXT NOT NULL, 
	read_at BIGINT NOT NULL, 
	mac VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_claimed_groups PRIMARY KEY (person)
);
CREATE TABLE cosignature (
	size INTEGER NOT NULL, 
	witness VARCHAR(200) NOT NULL, 
	line TEXT NOT NULL, 
	CONSTRAINT pk_cosignature PRIMARY KEY (size, witness)
);
CREATE TABLE decision (
	run INTEGER NOT NULL, 
	person VARCHAR(64) NOT NULL, 
	approves BOOLEAN NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	decided_at BIGINT NOT NULL, 
	reason TEXT NOT NULL, 
	on_behalf_of VARCHAR(64) NOT NULL, 
	factor VARCHAR(32) NOT NULL, 
	signature TEXT NOT NULL, 
	start_at BIGINT, 
	CONSTRAINT pk_decision PRIMARY KEY (run, person), 
	CONSTRAINT fk_decision_run FOREIGN KEY(run) REFERENCES run (id)
);
INSERT INTO "decision" VALUES(2,'olga',1,'70a43f6208c7db56e031022b7dd41ea7da089a791e75c006775c6ec37f2197d3',1795957683443995,'','','','',NULL);
CREATE TABLE delegation (
	id INTEGER NOT NULL, 
	delegator VARCHAR(64) NOT NULL, 
	delegate VARCHAR(64) NOT NULL, 
	area VARCHAR(64) NOT NULL, 
	created_at BIGINT NOT NULL, 
	ends_at BIGINT NOT NULL, 
	revoked_at BIGINT, 
	reason TEXT NOT NULL, 
	CONSTRAINT pk_delegation PRIMARY KEY (id)
);
CREATE TABLE delivery (
	subscription VARCHAR(64) NOT NULL, 
	seq BIGINT NOT NULL, 
	run INTEGER NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	occurred_at BIGINT NOT NULL, 
	attempts INTEGER NOT NULL, 
	next_attempt_at BIGINT NOT NULL, 
	failed_at BIGINT, 
	error TEXT NOT NULL, 
	CONSTRAINT pk_delivery PRIMARY KEY (subscription, seq)
);
CREATE TABLE drift_key (
	id INTEGER NOT NULL, 
	host VARCHAR(64) NOT NULL, 
	name TEXT NOT NULL, 
	run INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	since_at BIGINT NOT NULL, 
	good_at BIGINT NOT NULL, 
	read_at BIGINT NOT NULL, 
	next_at BIGINT NOT NULL, 
	requested_at BIGINT, 
	digest VARCHAR(64) NOT NULL, 
	value TEXT NOT NULL, 
	set_value TEXT NOT NULL, 
	adopted VARCHAR(64) NOT NULL, 
	candidates TEXT NOT NULL, 
	announced_at BIGINT, 
	expected_until BIGINT, 
	expected_range VARCHAR(80) NOT NULL, 
	CONSTRAINT pk_drift_key PRIMARY KEY (id), 
	CONSTRAINT fk_drift_key_run FOREIGN KEY(run) REFERENCES run (id), 
	CONSTRAINT uq_drift_key_host_name UNIQUE (host, name)
);
CREATE TABLE entry (
	seq INTEGER NOT NULL, 
	at BIGINT NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	run INTEGER, 
	person VARCHAR(64) NOT NULL, 
	host VARCHAR(64) NOT NULL, 
	body TEXT NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	note TEXT, 
	CONSTRAINT pk_entry PRIMARY KEY (seq)
);
INSERT INTO "entry" VALUES(1,1795957683032008,'key',NULL,'','','{"public":"ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c"}','8e0178b5116db0a13287aa356786c6ffd387e811c633df93135d0d01484a3f96','keyturn/ea4a6c63e29c520a
1
jgF4tRFtsKEyh6o1Z4bG/9OH6BHGM9+TE10NAUhKP5Y=

— keyturn/ea4a6c63e29c520a 3mW8FSx3mf/4l19h7k3eJr/gRtcD3lbJ5ikidbdlqq3BpBhClk//PUNJoseyPKfmX6Oq9KfCSEDNeWvgoSl7UrOFKQc=
');
INSERT INTO "entry" VALUES(2,1795957683243996,'requested',1,'dora','lb1','{"request":"toy show lb1","runbook":"toy show","source":"web","values":{"host":"lb1"}}','6110b09b148073851fb45e666ac7a7c4fe312cc63b9b19500eb6c12ce5bffb2a','keyturn/ea4a6c63e29c520a
2
tgx86YzWSw6+xjL8hXXiLU6i+F7jUu+JmXu7o2AFhlY=

— keyturn/ea4a6c63e29c520a 3mW8FVDa28a+CkjxCFI/Ih5eX/6inInEquZbYmLyRtjPbke1tOUBo8UpPfA8op4AnnMQNR1+w38GRf4gQfYO5xinLQw=
');
INSERT INTO "entry" VALUES(3,1795957683288011,'succeeded',1,'','lb1','{"healthy":true,"output_sha256":"48aa05e3460cfc231a525e772400c80ff6e126711ba4932f04ba906ecda82eb5","summary":"2 switches"}','9a67ca13f90012742266c5b5d91dde4c97611da929123291897631616bad9d8c','keyturn/ea4a6c63e29c520a
3
H0acpsI6VS9rx3ZX6vY/I7XCJJUj0LvoAK4ZliZEuF8=

— keyturn/ea4a6c63e29c520a 3mW8FRn4m9AcZPqSmFlOzOZDFdaqp6UqeZOiLw1ez9EB4U9yddcW/VZiQkqWLa1+yhaADYlx6h6l/IMJtl7xuUokEQ0=
');
INSERT INTO "entry" VALUES(4,1795957683308007,'requested',2,'dora','lb1','{"request":"toy set lb1 lamp on","runbook":"toy set","source":"web","values":{"host":"lb1","name":"lamp","value":"on"}}','c682bbf04ffcabdc7a8757aca5fd934eaf20c13530d345c40c598e28bf79f426','keyturn/ea4a6c63e29c520a
4
HIxLVt3164LAd4Vw0yG7V3eHdXovHRh4RFnXxkFUbtg=

— keyturn/ea4a6c63e29c520a 3mW8FQMDtBoUAXbmLOdgM64Y4R326FLE8xL9l1PsOS9NH4Csq8YWWOJExxy31cDhSSJ71v53IJ/fNIjQ2wMYdP07xQc=
');
INSERT INTO "entry" VALUES(5,1795957683324020,'planned',2,'','lb1','{"approver_groups":["area:edge"],"approvers":"the owners of the edge","digest":"70a43f6208c7db56e031022b7dd41ea7da089a791e75c006775c6ec37f2197d3","plan":{"current_state":"lamp is off","document":["keyturn-plan 1","installation keyturn","run 2","requested-by dora","reason","runbook toy set","runbook-version 313c97d9cc64","field host","value lb1","field name","value lamp","field value","value on","policy 590c6f1718a7","policy-result 75c2638e318d89063407a4331e3a3637acbeff29c00287bd7b71d185bd71daaa","rule developers request, owners approve","not-before 1795957683","expires 1796015283","nonce 3501144f7171da05e1b1f0dc57c67ca9","host lb1 22c71397b7521906a08aeb03fb09576a2a03e709e12f178017e6a7af792e1fca SHA256:5BGXh+rouT8pCZY07AmMVweTFKr376SBdX/TgyBcuV4"],"notes":[],"sections":[["keyturn-section 1","step Set lamp to on","before off","after on","do set","do lamp","do on","deadline 30","undo set","undo lamp","undo off","undo-deadline 30"]]},"required_approvals":1}','3443817e89b55e001bcbfc2d033b41ccbf42bed3c731c76e2fafe20725084634','keyturn/ea4a6c63e29c520a
5
Y7yMzgLpMcXgJaUTj5pilkI3aenbSPF1JVwYerODN/4=

— keyturn/ea4a6c63e29c520a 3mW8FfBkkKEqcRUA/Dqd0vUQrY4e23h/heCjlUnvNUR2OmFDBdz6Jb7CiGrN+mRCIRnr7lNEuT0q+kck5qYZhQcnkQc=
');
INSERT INTO "entry" VALUES(6,1795957683443995,'approved',2,'olga','lb1','{"digest":"70a43f6208c7db56e031022b7dd41ea7da089a791e75c006775c6ec37f2197d3"}','5572efc24683b7b659c2c5491ef366f7bd743a2c87426fa5e00b5f8816e14b3c','keyturn/ea4a6c63e29c520a
6
ufU22D3FUAhTZqdvDBKJ/ZmpCmgF4BqSBQa172WyY7k=

— keyturn/ea4a6c63e29c520a 3mW8Fa76C7SxRlcysRvsV2ipXgqAFhVqdHLXeQcfx4nes8sGhT6NfHhQ0U0SQUw+Z4DGIYSDfl89YDZGzMLA/M4JnA0=
');
INSERT INTO "entry" VALUES(7,1795957683482015,'claimed',2,'','lb1','{"fence":1,"worker":"vm 31787 53116da2"}','4180757acf3dc8349c7278b81971d3a5fffb041f9f40f2f83d04eda9f3800255','keyturn/ea4a6c63e29c520a
7
Y9Nh+SqTCSaei5r6kPfwdg3ayPKll8ZiH1yszup8bbY=

— keyturn/ea4a6c63e29c520a 3mW8FfZgNhfQLBIydnd0uEDkxiOOiArpkOn7nh9ksk5TeYS4k7jM/EirhCi5K7m8uqDO9iWrxgxssTzikVtOjla1bgk=
');
INSERT INTO "entry" VALUES(8,1795957683567994,'started',2,'','lb1','{"digest":"70a43f6208c7db56e031022b7dd41ea7da089a791e75c006775c6ec37f2197d3"}','0b470805a2898127ed8c4afab6125d623070d055c44e70903f7c3101e4791826','keyturn/ea4a6c63e29c520a
8
Xemu91vW0u9Wn9PlpJGFaIEYa6Z+z+z954Wco7Y6LhI=

— keyturn/ea4a6c63e29c520a 3mW8FZ8nQDSErHH6rkpcJRpel6sdR+ZquUWALGZoTRDLR/RTiwWSbzIhRcSbP1/DgOXyrEceawLJFOQrgW8noZSfsw0=
');
INSERT INTO "entry" VALUES(9,1795957683567994,'step sending',2,'','lb1','{"command":"set lamp on","step":1,"title":"Set lamp to on"}','ee008e3f46400966df9c1e1688473570e1d83b7654d95a115308691faf35e06a','keyturn/ea4a6c63e29c520a
9
bnomZjziVbGAumQHxEyZmrfkuIAyS459T05f8EPBHEQ=

— keyturn/ea4a6c63e29c520a 3mW8FU9wZiPpHETbvX65BofcN1Y7VSALdmXyReB/sYxRaGTdsQXAu8B0V78TAr/UAeNJcedtUbJzlSPLT4Ks0aHtGQI=
');
INSERT INTO "entry" VALUES(10,1795957683604002,'step succeeded',2,'','lb1','{"exit_status":0,"output_sha256":"5d72c8af33eedbf56184107d9239e4605a660c3a82261a7ecf50b0de61bb820c","step":1}','063c8ce9957547865b7102aa2da44d6e080d03ab0c51e59468f36c02ee8c05f4','keyturn/ea4a6c63e29c520a
10
8UhqrlI8eo2B5KLAgpoeufQjDIiUiD3WKD3V1lr3468=

— keyturn/ea4a6c63e29c520a 3mW8FdVHm/3RajNjDJrmakLmT87jf/MwvnXTnI8heeiq3VDdqOMSXfETJNQXEMxNdoREIMtp0uMrNMonzh1c9UeZbAE=
');
INSERT INTO "entry" VALUES(11,1795957683614020,'verified',2,'','lb1','{"current_state":"lamp is on"}','5f9e8f7daeb91e94add3bb08e75acce0066bf37285adc46056bc11e7babfc9f1','keyturn/ea4a6c63e29c520a
11
wvkTwD80ioaZuqFO30bVoGFewk8l6/NmVN9KPrVQZoo=

— keyturn/ea4a6c63e29c520a 3mW8FbcweO/GUCICRyxYqyKrD8+j0B3sseKBSgKccVuYhRN4zrSffh/Z64KnlzahIUEnqUAzLQOoKnTStA78zv16mAY=
');
INSERT INTO "entry" VALUES(12,1795957683614020,'succeeded',2,'','lb1','{"summary":"Verified: lamp is on"}','7ed86fd2e6d534ab4c8734ab105a2b5caa05cfc80f733573510bd6dcd617f909','keyturn/ea4a6c63e29c520a
12
Mxaf8mgDT5No6Vji78QMR9ae5yWSi8Z5SdabiVsJ2q4=

— keyturn/ea4a6c63e29c520a 3mW8FTNfb4J9pXDYkH9dI3GxxAVRQvKRQ8R1PXQuEnA8yWe5a2hCVID1d3s30+mzYiD57yfTsT0bNG9+mpxwgNTEpAc=
');
INSERT INTO "entry" VALUES(13,1795957683629992,'requested',3,'dora','lb2','{"reason":"it is dark","request":"toy set lb2 lamp on","runbook":"toy set","source":"web","values":{"host":"lb2","name":"lamp","value":"on"}}','b2dff3a24bbe14f6eaea3a653d8d35ea3ce8949982e95aab5deecb68b1417a48','keyturn/ea4a6c63e29c520a
13
+tAq1NaewUTLqCo1NKE0rzFb31AEsbUmo3IcDETar04=

— keyturn/ea4a6c63e29c520a 3mW8FY8CqZXM0xdmGxScYQ+eNYUGsvoWRls/DwooCv9eXv2123clvlEUXVDa4CzWOzxOqGtXQzjkHcYApvjc3+tKOwY=
');
INSERT INTO "entry" VALUES(14,1795957683641982,'planned',3,'','lb2','{"approver_groups":["area:edge"],"approvers":"the owners of the edge","digest":"833e28f53fd81fc41dbaeb19764fce76287d6eb143fbfa01ef5d9fea8ad78f77","plan":{"current_state":"lamp is off","document":["keyturn-plan 1","installation keyturn","run 3","requested-by dora","reason it is dark","runbook toy set","runbook-version 313c97d9cc64","field host","value lb2","field name","value lamp","field value","value on","policy 590c6f1718a7","policy-result 6552f81f086dfcaaf127d1f4d4c06dbbbce07f5c3f2562f542f1195198dd56c3","rule developers request, owners approve","not-before 1795957683","expires 1796015283","nonce 0bc899104b26ca427ba545e5e2b720b7","host lb2 22c71397b7521906a08aeb03fb09576a2a03e709e12f178017e6a7af792e1fca SHA256:5BGXh+rouT8pCZY07AmMVweTFKr376SBdX/TgyBcuV4"],"notes":[],"sections":[["keyturn-section 1","step Set lamp to on","before off","after on","do set","do lamp","do on","deadline 30","undo set","undo lamp","undo off","undo-deadline 30"]]},"required_approvals":1}','32fc05e02d2231a494a49ea27ed2ab0fed6f87728c1ad728c202b7df78c387da','keyturn/ea4a6c63e29c520a
14
8oA7s0BEP7+ugtM1s2kHtPnQWxtdTpkwgK/COREq9MI=

— keyturn/ea4a6c63e29c520a 3mW8Ffpxds5BLc0pb13pjK4Vz6hIzToV28mUJtdklaKJlh8ys3shbH5nN7nyUg75t8q3imSyUd0q1VWmig57nhEwpQI=
');
CREATE TABLE event_reading (
	tree VARCHAR(64) NOT NULL, 
	event VARCHAR(64) NOT NULL, 
	state VARCHAR(8) NOT NULL, 
	since_at BIGINT NOT NULL, 
	read_at BIGINT NOT NULL, 
	run INTEGER, 
	detail TEXT NOT NULL, 
	CONSTRAINT pk_event_reading PRIMARY KEY (tree, event)
);
CREATE TABLE fire (
	schedule INTEGER NOT NULL, 
	due_at BIGINT NOT NULL, 
	host VARCHAR(64) NOT NULL, 
	outcome VARCHAR(16) NOT NULL, 
	starts_at BIGINT NOT NULL, 
	recorded_at BIGINT NOT NULL, 
	run INTEGER, 
	reason TEXT NOT NULL, 
	CONSTRAINT pk_fire PRIMARY KEY (schedule, due_at, host), 
	CONSTRAINT fk_fire_run FOREIGN KEY(run) REFERENCES run (id), 
	CONSTRAINT fk_fire_schedule FOREIGN KEY(schedule) REFERENCES schedule (id)
);
CREATE TABLE follow_up (
	run INTEGER NOT NULL, 
	since BIGINT NOT NULL, 
	next_at BIGINT NOT NULL, 
	attempts INTEGER NOT NULL, 
	CONSTRAINT pk_follow_up PRIMARY KEY (run), 
	CONSTRAINT fk_follow_up_run FOREIGN KEY(run) REFERENCES run (id)
);
CREATE TABLE grant_use (
	run INTEGER NOT NULL, 
	grant_id INTEGER NOT NULL, 
	used_at BIGINT NOT NULL, 
	CONSTRAINT pk_grant_use PRIMARY KEY (run), 
	CONSTRAINT fk_grant_use_grant_id FOREIGN KEY(grant_id) REFERENCES standing_grant (id), 
	CONSTRAINT fk_grant_use_run FOREIGN KEY(run) REFERENCES run (id)
);
CREATE TABLE host_contact (
	host VARCHAR(64) NOT NULL, 
	tried_at BIGINT NOT NULL, 
	answered_at BIGINT, 
	since BIGINT NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	error TEXT NOT NULL, 
	failed_at BIGINT, 
	CONSTRAINT pk_host_contact PRIMARY KEY (host)
);
CREATE TABLE host_lock (
	host VARCHAR(64) NOT NULL, 
	run INTEGER NOT NULL, 
	since BIGINT NOT NULL, 
	CONSTRAINT pk_host_lock PRIMARY KEY (host), 
	CONSTRAINT fk_host_lock_run FOREIGN KEY(run) REFERENCES run (id)
);
CREATE TABLE inbound_event (
	source VARCHAR(64) NOT NULL, 
	"key" VARCHAR(64) NOT NULL, 
	received_at BIGINT NOT NULL, 
	CONSTRAINT pk_inbound_event PRIMARY KEY (source, "key")
);
CREATE TABLE lease (
	run INTEGER NOT NULL, 
	fence INTEGER NOT NULL, 
	worker VARCHAR(96) NOT NULL, 
	expires_at BIGINT NOT NULL, 
	CONSTRAINT pk_lease PRIMARY KEY (run), 
	CONSTRAINT fk_lease_run FOREIGN KEY(run) REFERENCES run (id)
);
CREATE TABLE leg_claim (
	tree VARCHAR(64) NOT NULL, 
	event VARCHAR(64) NOT NULL, 
	run INTEGER NOT NULL, 
	claimed_at BIGINT NOT NULL, 
	CONSTRAINT pk_leg_claim PRIMARY KEY (tree, event, run), 
	CONSTRAINT fk_leg_claim_run FOREIGN KEY(run) REFERENCES run (id)
);
CREATE TABLE live_output (
	run INTEGER NOT NULL, 
	step_number INTEGER NOT NULL, 
	received_at BIGINT NOT NULL, 
	total_lines BIGINT NOT NULL, 
	text TEXT NOT NULL, 
	CONSTRAINT pk_live_output PRIMARY KEY (run, step_number), 
	CONSTRAINT fk_live_output_run FOREIGN KEY(run) REFERENCES run (id)
);
CREATE TABLE log_snapshot (
	rules VARCHAR(64) NOT NULL, 
	size BIGINT NOT NULL, 
	root VARCHAR(44) NOT NULL, 
	content TEXT NOT NULL, 
	mac VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_log_snapshot PRIMARY KEY (rules)
);
CREATE TABLE oncall_reading (
	name VARCHAR(64) NOT NULL, 
	source VARCHAR(64) NOT NULL, 
	fetched_at BIGINT NOT NULL, 
	next_fetch_at BIGINT NOT NULL, 
	shifts TEXT NOT NULL, 
	error TEXT NOT NULL, 
	mac VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_oncall_reading PRIMARY KEY (name)
);
CREATE TABLE ordered_freeze (
	id INTEGER NOT NULL, 
	hosts TEXT NOT NULL, 
	areas TEXT NOT NULL, 
	person VARCHAR(64) NOT NULL, 
	reason TEXT NOT NULL, 
	begins_at BIGINT NOT NULL, 
	ends_at BIGINT NOT NULL, 
	ended_at BIGINT, 
	CONSTRAINT pk_ordered_freeze PRIMARY KEY (id)
);
CREATE TABLE outbox (
	run INTEGER NOT NULL, 
	revision BIGINT NOT NULL, 
	attempts INTEGER NOT NULL, 
	next_attempt_at BIGINT NOT NULL, 
	sender VARCHAR(36) NOT NULL, 
	error TEXT NOT NULL, 
	CONSTRAINT pk_outbox PRIMARY KEY (run), 
	CONSTRAINT fk_outbox_run FOREIGN KEY(run) REFERENCES run (id)
);
INSERT INTO "outbox" VALUES(1,1795957683243997,0,0,'','');
INSERT INTO "outbox" VALUES(2,1795957683308012,0,0,'','');
INSERT INTO "outbox" VALUES(3,1795957683629993,0,0,'','');
CREATE TABLE output (
	entry INTEGER NOT NULL, 
	run INTEGER NOT NULL, 
	step_number INTEGER NOT NULL, 
	salt VARCHAR(32), 
	text TEXT, 
	CONSTRAINT pk_output PRIMARY KEY (entry), 
	CONSTRAINT fk_output_entry FOREIGN KEY(entry) REFERENCES entry (seq)
);
INSERT INTO "output" VALUES(3,1,0,'57e3053e53b487298f53ab0f47db21fa','{"summary":"2 switches","healthy":true,"findings":["fan=off","lamp=off"],"table":null,"running":false}');
INSERT INTO "output" VALUES(10,2,1,'c6b3d502485b3902b877bcbabe680f51','lamp is on now');
CREATE TABLE provisioned_group (
	group_id VARCHAR(36) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	group_key VARCHAR(255) NOT NULL, 
	external_id VARCHAR(255) NOT NULL, 
	created_at BIGINT NOT NULL, 
	changed_at BIGINT NOT NULL, 
	mac VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_provisioned_group PRIMARY KEY (group_id), 
	CONSTRAINT uq_provisioned_group_group_key UNIQUE (group_key)
);
CREATE TABLE provisioned_member (
	group_id VARCHAR(36) NOT NULL, 
	user_id VARCHAR(36) NOT NULL, 
	mac VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_provisioned_member PRIMARY KEY (group_id, user_id)
);
CREATE TABLE provisioned_user (
	user_id VARCHAR(36) NOT NULL, 
	person VARCHAR(64) NOT NULL, 
	user_name VARCHAR(255) NOT NULL, 
	user_key VARCHAR(255), 
	external_id VARCHAR(255) NOT NULL, 
	email VARCHAR(254) NOT NULL, 
	name VARCHAR(120) NOT NULL, 
	document TEXT NOT NULL, 
	is_active BOOLEAN NOT NULL, 
	stay VARCHAR(64) NOT NULL, 
	created_at BIGINT NOT NULL, 
	changed_at BIGINT NOT NULL, 
	deleted_at BIGINT, 
	mac VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_provisioned_user PRIMARY KEY (user_id), 
	CONSTRAINT uq_provisioned_user_person UNIQUE (person), 
	CONSTRAINT uq_provisioned_user_user_key UNIQUE (user_key)
);
CREATE TABLE provisioning_revision (
	id INTEGER NOT NULL, 
	revision BIGINT NOT NULL, 
	CONSTRAINT pk_provisioning_revision PRIMARY KEY (id)
);
CREATE TABLE run (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	version INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	runbook VARCHAR(80) NOT NULL, 
	kind VARCHAR(8) NOT NULL, 
	field_values TEXT NOT NULL, 
	request TEXT NOT NULL, 
	host VARCHAR(64) NOT NULL, 
	area VARCHAR(1000) NOT NULL, 
	requested_by VARCHAR(64) NOT NULL, 
	origin TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	requested_at BIGINT NOT NULL, 
	expires_at BIGINT, 
	started_at BIGINT, 
	ended_at BIGINT, 
	"plan" TEXT, 
	digest VARCHAR(64) NOT NULL, 
	required_approvals INTEGER NOT NULL, 
	approver_groups TEXT NOT NULL, 
	policy_notes TEXT NOT NULL, 
	requirements TEXT NOT NULL, 
	pending_since BIGINT, 
	reminded_at BIGINT, 
	escalated_at BIGINT, 
	undo_of INTEGER, 
	parent INTEGER, 
	hosts TEXT NOT NULL, 
	timing TEXT, 
	editors TEXT NOT NULL, 
	proposal_for INTEGER, 
	grant_id INTEGER, 
	guard_override VARCHAR(400) NOT NULL, 
	ticket VARCHAR(64) NOT NULL, 
	replan_of INTEGER, 
	summary TEXT NOT NULL, 
	refused_by VARCHAR(16), 
	waiting TEXT, 
	fan_out_role INTEGER NOT NULL, 
	needs_attention BOOLEAN NOT NULL, 
	CONSTRAINT fk_run_proposal_for FOREIGN KEY(proposal_for) REFERENCES run (id), 
	CONSTRAINT fk_run_replan_of FOREIGN KEY(replan_of) REFERENCES run (id), 
	CONSTRAINT fk_run_grant_id FOREIGN KEY(grant_id) REFERENCES standing_grant (id), 
	CONSTRAINT fk_run_parent FOREIGN KEY(parent) REFERENCES run (id), 
	CONSTRAINT fk_run_undo_of FOREIGN KEY(undo_of) REFERENCES run (id)
);
INSERT INTO "run" VALUES(1,2,'succeeded','toy show','check','{"host":"lb1"}','toy show lb1','lb1','edge','dora','{"source":"web","channel":"","user":"","schedule_id":0,"agent":null}','',1795957683243996,NULL,1795957683243996,1795957683288011,NULL,'',0,'[]','[]','{"demands":[],"requires_second_factor":false,"requires_signature":false,"requires_signed_request":false,"requires_reason":false,"requires_ticket":false,"required_witnesses":0,"remind_after":0,"escalate_to":[]}',NULL,NULL,NULL,NULL,NULL,'[]',NULL,'[]',NULL,NULL,'','',NULL,'2 switches',NULL,NULL,0,0);
INSERT INTO "run" VALUES(2,7,'succeeded','toy set','change','{"host":"lb1","name":"lamp","value":"on"}','toy set lb1 lamp on','lb1','edge','dora','{"source":"web","channel":"","user":"","schedule_id":0,"agent":null}','',1795957683308007,1795986483443995,1795957683567994,1795957683614020,'{"runbook":"toy set","runbook_version":"313c97d9cc64","values":{"host":"lb1","name":"lamp","value":"on"},"requested_by":"dora","expires_at":1796015283000000,"policy_version":"590c6f1718a7","current_state":"lamp is off","steps":[{"title":"Set lamp to on","host":"lb1","fingerprint":"SHA256:5BGXh+rouT8pCZY07AmMVweTFKr376SBdX/TgyBcuV4","command":{"argv":["set","lamp","on"],"stdin":"","root":false,"error_pattern":"","hints":[],"deadline":30,"new_connection":false,"enrolled_argv":[],"note":"","marker":null,"begun_status":null},"undo":{"argv":["set","lamp","off"],"stdin":"","root":false,"error_pattern":"","hints":[],"deadline":30,"new_connection":false,"enrolled_argv":[],"note":"","marker":null,"begun_status":null},"no_undo_reason":"","before":"off","after":"on","undo_title":""}],"notes":[],"undo_of":null,"timing":null,"host_keys":{},"schedule_lifetime":0,"takes_down":[],"guard_override":"","ticket":null,"part_steps":{},"policy_result":"75c2638e318d89063407a4331e3a3637acbeff29c00287bd7b71d185bd71daaa","rules":["developers request, owners approve"],"installation":"keyturn","run":2,"reason":"","not_before":1795957683324020,"nonce":"3501144f7171da05e1b1f0dc57c67ca9"}','70a43f6208c7db56e031022b7dd41ea7da089a791e75c006775c6ec37f2197d3',1,'["area:edge"]','["Developers may request any change; an owner of the area approves it."]','{"demands":[{"required_approvals":1,"group_sets":[["area:edge"]]}],"requires_second_factor":false,"requires_signature":false,"requires_signed_request":false,"requires_reason":false,"requires_ticket":false,"required_witnesses":0,"remind_after":0,"escalate_to":[]}',1795957683324020,NULL,NULL,NULL,NULL,'[]',NULL,'[]',NULL,NULL,'','',NULL,'Verified: lamp is on',NULL,NULL,0,0);
INSERT INTO "run" VALUES(3,3,'pending','toy set','change','{"host":"lb2","name":"lamp","value":"on"}','toy set lb2 lamp on','lb2','edge','dora','{"source":"web","channel":"","user":"","schedule_id":0,"agent":null}','it is dark',1795957683629992,1795986483641982,NULL,NULL,'{"runbook":"toy set","runbook_version":"313c97d9cc64","values":{"host":"lb2","name":"lamp","value":"on"},"requested_by":"dora","expires_at":1796015283000000,"policy_version":"590c6f1718a7","current_state":"lamp is off","steps":[{"title":"Set lamp to on","host":"lb2","fingerprint":"SHA256:5BGXh+rouT8pCZY07AmMVweTFKr376SBdX/TgyBcuV4","command":{"argv":["set","lamp","on"],"stdin":"","root":false,"error_pattern":"","hints":[],"deadline":30,"new_connection":false,"enrolled_argv":[],"note":"","marker":null,"begun_status":null},"undo":{"argv":["set","lamp","off"],"stdin":"","root":false,"error_pattern":"","hints":[],"deadline":30,"new_connection":false,"enrolled_argv":[],"note":"","marker":null,"begun_status":null},"no_undo_reason":"","before":"off","after":"on","undo_title":""}],"notes":[],"undo_of":null,"timing":null,"host_keys":{},"schedule_lifetime":0,"takes_down":[],"guard_override":"","ticket":null,"part_steps":{},"policy_result":"6552f81f086dfcaaf127d1f4d4c06dbbbce07f5c3f2562f542f1195198dd56c3","rules":["developers request, owners approve"],"installation":"keyturn","run":3,"reason":"it is dark","not_before":1795957683641982,"nonce":"0bc899104b26ca427ba545e5e2b720b7"}','833e28f53fd81fc41dbaeb19764fce76287d6eb143fbfa01ef5d9fea8ad78f77',1,'["area:edge"]','["Developers may request any change; an owner of the area approves it."]','{"demands":[{"required_approvals":1,"group_sets":[["area:edge"]]}],"requires_second_factor":false,"requires_signature":false,"requires_signed_request":false,"requires_reason":false,"requires_ticket":false,"required_witnesses":0,"remind_after":0,"escalate_to":[]}',1795957683641982,NULL,NULL,NULL,NULL,'[]',NULL,'[]',NULL,NULL,'','',NULL,'',NULL,NULL,0,0);
CREATE TABLE saved_view (
	id INTEGER NOT NULL, 
	person VARCHAR(64) NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	"query" TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_saved_view PRIMARY KEY (id), 
	CONSTRAINT uq_saved_view_person_name UNIQUE (person, name)
);
CREATE TABLE schedule (
	id INTEGER NOT NULL, 
	run INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	owner VARCHAR(64) NOT NULL, 
	timing TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	lapses_at BIGINT NOT NULL, 
	decided_until BIGINT NOT NULL, 
	due_at BIGINT, 
	reason TEXT NOT NULL, 
	CONSTRAINT pk_schedule PRIMARY KEY (id), 
	CONSTRAINT fk_schedule_run FOREIGN KEY(run) REFERENCES run (id), 
	CONSTRAINT uq_schedule_run UNIQUE (run)
);
CREATE TABLE search_word (
	word VARCHAR(64) NOT NULL, 
	run INTEGER NOT NULL, 
	CONSTRAINT pk_search_word PRIMARY KEY (word, run)
)
 WITHOUT ROWID

;
INSERT INTO "search_word" VALUES('dark',3);
INSERT INTO "search_word" VALUES('fan',1);
INSERT INTO "search_word" VALUES('fan=off',1);
INSERT INTO "search_word" VALUES('host=lb1',1);
INSERT INTO "search_word" VALUES('host=lb1',2);
INSERT INTO "search_word" VALUES('host=lb2',3);
INSERT INTO "search_word" VALUES('is',2);
INSERT INTO "search_word" VALUES('is',3);
INSERT INTO "search_word" VALUES('it',3);
INSERT INTO "search_word" VALUES('lamp',1);
INSERT INTO "search_word" VALUES('lamp',2);
INSERT INTO "search_word" VALUES('lamp',3);
INSERT INTO "search_word" VALUES('lamp=off',1);
INSERT INTO "search_word" VALUES('lb1',1);
INSERT INTO "search_word" VALUES('lb1',2);
INSERT INTO "search_word" VALUES('lb2',3);
INSERT INTO "search_word" VALUES('name=lamp',2);
INSERT INTO "search_word" VALUES('name=lamp',3);
INSERT INTO "search_word" VALUES('now',2);
INSERT INTO "search_word" VALUES('off',1);
INSERT INTO "search_word" VALUES('on',2);
INSERT INTO "search_word" VALUES('on',3);
INSERT INTO "search_word" VALUES('switches',1);
INSERT INTO "search_word" VALUES('value=on',2);
INSERT INTO "search_word" VALUES('value=on',3);
INSERT INTO "search_word" VALUES('verified',2);
CREATE TABLE second_factor (
	id INTEGER NOT NULL, 
	person VARCHAR(64) NOT NULL, 
	kind VARCHAR(8) NOT NULL, 
	digest VARCHAR(32) NOT NULL, 
	created_at BIGINT NOT NULL, 
	verified_at BIGINT, 
	last_counter BIGINT NOT NULL, 
	confirmed_by VARCHAR(64) NOT NULL, 
	sealed TEXT NOT NULL, 
	CONSTRAINT pk_second_factor PRIMARY KEY (id)
);
CREATE TABLE secret (
	name VARCHAR(32) NOT NULL, 
	content TEXT NOT NULL, 
	CONSTRAINT pk_secret PRIMARY KEY (name)
);
CREATE TABLE seen_request (
	"key" VARCHAR(160) NOT NULL, 
	seen_at BIGINT NOT NULL, 
	CONSTRAINT pk_seen_request PRIMARY KEY ("key")
);
CREATE TABLE session (
	token VARCHAR(64) NOT NULL, 
	person VARCHAR(64) NOT NULL, 
	started_at BIGINT NOT NULL, 
	last_seen_at BIGINT NOT NULL, 
	stepped_up_at BIGINT, 
	factor_digest VARCHAR(32) NOT NULL, 
	challenge VARCHAR(64) NOT NULL, 
	challenged_at BIGINT, 
	signed_in_by VARCHAR(16) NOT NULL, 
	user_agent VARCHAR(200) NOT NULL, 
	mac VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_session PRIMARY KEY (token)
);
CREATE TABLE sign_in_link (
	token VARCHAR(64) NOT NULL, 
	person VARCHAR(64) NOT NULL, 
	expires_at BIGINT NOT NULL, 
	used_at BIGINT, 
	mac VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_sign_in_link PRIMARY KEY (token)
);
CREATE TABLE slack_home (
	user VARCHAR(32) NOT NULL, 
	person VARCHAR(64) NOT NULL, 
	opened_at BIGINT NOT NULL, 
	rendered_at BIGINT NOT NULL, 
	due_at BIGINT, 
	digest VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_slack_home PRIMARY KEY (user)
);
CREATE TABLE slack_message (
	run INTEGER NOT NULL, 
	slot VARCHAR(96) NOT NULL, 
	channel VARCHAR(32) NOT NULL, 
	ts VARCHAR(32) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_slack_message PRIMARY KEY (run, slot), 
	CONSTRAINT fk_slack_message_run FOREIGN KEY(run) REFERENCES run (id)
);
CREATE TABLE standing_grant (
	id INTEGER NOT NULL, 
	person VARCHAR(64) NOT NULL, 
	runbook VARCHAR(80) NOT NULL, 
	hosts VARCHAR(100) NOT NULL, 
	value_patterns TEXT NOT NULL, 
	per_hour INTEGER NOT NULL, 
	granted_by VARCHAR(64) NOT NULL, 
	created_at BIGINT NOT NULL, 
	ends_at BIGINT NOT NULL, 
	revoked_at BIGINT, 
	reason TEXT NOT NULL, 
	CONSTRAINT pk_standing_grant PRIMARY KEY (id)
);
CREATE TABLE step (
	run INTEGER NOT NULL, 
	step_number INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	sent_at BIGINT NOT NULL, 
	ended_at BIGINT, 
	exit_status INTEGER, 
	error TEXT NOT NULL, 
	CONSTRAINT pk_step PRIMARY KEY (run, step_number), 
	CONSTRAINT fk_step_run FOREIGN KEY(run) REFERENCES run (id)
);
INSERT INTO "step" VALUES(2,1,'succeeded',1795957683567994,1795957683604002,0,'');
CREATE TABLE stop (
	what VARCHAR(16) NOT NULL, 
	person VARCHAR(64) NOT NULL, 
	stopped_at BIGINT NOT NULL, 
	reason TEXT NOT NULL, 
	CONSTRAINT pk_stop PRIMARY KEY (what)
);
CREATE TABLE stored_response (
	"key" VARCHAR(64) NOT NULL, 
	request_digest VARCHAR(64) NOT NULL, 
	claimed_at BIGINT NOT NULL, 
	response TEXT, 
	first_entry BIGINT, 
	CONSTRAINT pk_stored_response PRIMARY KEY ("key")
);
CREATE TABLE subscription (
	name VARCHAR(64) NOT NULL, 
	seq BIGINT NOT NULL, 
	next_attempt_at BIGINT NOT NULL, 
	error VARCHAR(300) NOT NULL, 
	CONSTRAINT pk_subscription PRIMARY KEY (name)
);
CREATE TABLE tile (
	level INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_tile PRIMARY KEY (level, number)
);
CREATE TABLE time_stamp (
	size INTEGER NOT NULL, 
	at BIGINT NOT NULL, 
	response TEXT NOT NULL, 
	CONSTRAINT pk_time_stamp PRIMARY KEY (size)
);
CREATE TABLE tree_lock (
	tree VARCHAR(64) NOT NULL, 
	version BIGINT NOT NULL, 
	CONSTRAINT pk_tree_lock PRIMARY KEY (tree)
);
CREATE INDEX ix_entry_kind_seq ON entry (kind, seq);
CREATE INDEX ix_entry_run_seq ON entry (run, seq);
CREATE INDEX ix_entry_host_seq ON entry (host, seq);
CREATE INDEX ix_entry_person_seq ON entry (person, seq);
CREATE INDEX ix_entry_at_seq ON entry (at, seq);
CREATE INDEX ix_standing_grant_person_runbook ON standing_grant (person, runbook);
CREATE INDEX ix_delegation_delegate_ends_at ON delegation (delegate, ends_at);
CREATE INDEX ix_output_run_step_number ON output (run, step_number);
CREATE INDEX ix_run_area ON run (area, id, fan_out_role, requested_at, state, needs_attention, host);
CREATE INDEX ix_run_host ON run (host, id, fan_out_role, requested_at, state, needs_attention, runbook, requested_by, area);
CREATE INDEX ix_run_person ON run (requested_by, id, fan_out_role, requested_at, state, needs_attention, runbook, area, host);
CREATE INDEX ix_run_state ON run (state, id, fan_out_role, requested_at, needs_attention, host);
CREATE INDEX ix_run_runbook ON run (runbook, id, fan_out_role, requested_at, state, needs_attention, area, host);
CREATE INDEX ix_run_edited ON run (id) WHERE editors != '[]';
CREATE INDEX ix_run_newest ON run (id, fan_out_role, requested_at, state, needs_attention, host);
CREATE INDEX ix_run_requested_by_runbook ON run (requested_by, runbook);
CREATE INDEX ix_run_requested_at_id ON run (requested_at, id);
CREATE INDEX ix_run_ended_at_id ON run (ended_at, id);
CREATE INDEX ix_run_parent_id ON run (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX ix_slack_home_due_at ON slack_home (due_at);
CREATE INDEX ix_seen_request_seen_at ON seen_request (seen_at);
CREATE INDEX ix_second_factor_person ON second_factor (person);
CREATE INDEX ix_break_glass_person_activated_at ON break_glass (person, activated_at);
CREATE INDEX ix_schedule_state_due_at ON schedule (state, due_at);
CREATE INDEX ix_fire_outcome_starts_at ON fire (outcome, starts_at);
CREATE INDEX ix_fire_run ON fire (run);
CREATE INDEX ix_follow_up_next_at ON follow_up (next_at);
CREATE INDEX ix_live_output_run_received_at ON live_output (run, received_at);
CREATE INDEX ix_outbox_revision ON outbox (revision);
CREATE INDEX ix_slack_message_ts ON slack_message (ts);
CREATE INDEX ix_grant_use_grant_id_used_at ON grant_use (grant_id, used_at);
CREATE INDEX ix_api_token_person ON api_token (person);
CREATE INDEX ix_stored_response_claimed_at ON stored_response (claimed_at);
CREATE INDEX ix_inbound_event_received_at ON inbound_event (received_at);
CREATE INDEX ix_delivery_failed_at ON delivery (failed_at);
CREATE INDEX ix_delivery_subscription_run_seq ON delivery (subscription, run, seq);
CREATE INDEX ix_lease_expires_at ON lease (expires_at);
CREATE INDEX ix_drift_key_next_at ON drift_key (next_at);
CREATE INDEX ix_drift_key_run ON drift_key (run);
CREATE INDEX ix_drift_key_state ON drift_key (state);
CREATE INDEX ix_ordered_freeze_ends_at ON ordered_freeze (ends_at);
CREATE INDEX ix_alert_answer_claimed_at ON alert_answer (claimed_at);
CREATE INDEX ix_provisioned_user_created_at_user_id ON provisioned_user (created_at, user_id);
CREATE INDEX ix_provisioned_user_external_id ON provisioned_user (external_id);
CREATE INDEX ix_provisioned_group_external_id ON provisioned_group (external_id);
CREATE INDEX ix_provisioned_member_user_id ON provisioned_member (user_id);
CREATE TRIGGER entry_no_update BEFORE UPDATE ON entry BEGIN SELECT RAISE(ABORT, 'the change log is append-only'); END;
CREATE TRIGGER entry_no_delete BEFORE DELETE ON entry BEGIN SELECT RAISE(ABORT, 'the change log is append-only'); END;
CREATE TRIGGER tile_no_update BEFORE UPDATE ON tile BEGIN SELECT RAISE(ABORT, 'the change log is append-only'); END;
CREATE TRIGGER tile_no_delete BEFORE DELETE ON tile BEGIN SELECT RAISE(ABORT, 'the change log is append-only'); END;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('run',3);
COMMIT;
