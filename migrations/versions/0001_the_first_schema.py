"""The first schema.

Revision: 0001
"""

import sqlalchemy as sa
from alembic import op


revision = '0001'
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('entry',
    sa.Column('seq', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.Column('at', sa.BigInteger(), nullable=False),
    sa.Column('kind', sa.String(length=32), nullable=False),
    sa.Column('run', sa.Integer(), nullable=True),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('host', sa.String(length=64), nullable=False),
    sa.Column('body', sa.Text(), nullable=False),
    sa.Column('hash', sa.String(length=64), nullable=False),
    sa.Column('note', sa.Text(), nullable=True),
    sa.PrimaryKeyConstraint('seq', name=op.f('pk_entry'))
    )
    op.create_table('cosignature',
    sa.Column('size', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), autoincrement=False, nullable=False),
    sa.Column('witness', sa.String(length=200), nullable=False),
    sa.Column('line', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('size', 'witness', name=op.f('pk_cosignature'))
    )
    op.create_table('time_stamp',
    sa.Column('size', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), autoincrement=False, nullable=False),
    sa.Column('at', sa.BigInteger(), nullable=False),
    sa.Column('response', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('size', name=op.f('pk_time_stamp'))
    )
    op.create_table('tile',
    sa.Column('level', sa.Integer(), autoincrement=False, nullable=False),
    sa.Column('number', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), autoincrement=False, nullable=False),
    sa.Column('hash', sa.String(length=64), nullable=False),
    sa.PrimaryKeyConstraint('level', 'number', name=op.f('pk_tile'))
    )
    op.create_table('log_snapshot',
    sa.Column('rules', sa.String(length=64), nullable=False),
    sa.Column('size', sa.BigInteger(), nullable=False),
    sa.Column('root', sa.String(length=44), nullable=False),
    sa.Column('content', sa.Text(), nullable=False),
    sa.Column('mac', sa.String(length=64), nullable=False),
    sa.PrimaryKeyConstraint('rules', name=op.f('pk_log_snapshot'))
    )
    with op.batch_alter_table('entry', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_entry_kind_seq'), ['kind', 'seq'], unique=False)
        batch_op.create_index(batch_op.f('ix_entry_run_seq'), ['run', 'seq'], unique=False)
        batch_op.create_index(batch_op.f('ix_entry_host_seq'), ['host', 'seq'], unique=False)
        batch_op.create_index(batch_op.f('ix_entry_person_seq'), ['person', 'seq'], unique=False)
        batch_op.create_index(batch_op.f('ix_entry_at_seq'), ['at', 'seq'], unique=False)

    op.create_table('standing_grant',
    sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('runbook', sa.String(length=80), nullable=False),
    sa.Column('hosts', sa.String(length=100), nullable=False),
    sa.Column('value_patterns', sa.Text(), nullable=False),
    sa.Column('per_hour', sa.Integer(), nullable=False),
    sa.Column('granted_by', sa.String(length=64), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.Column('ends_at', sa.BigInteger(), nullable=False),
    sa.Column('revoked_at', sa.BigInteger(), nullable=True),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_standing_grant'))
    )
    with op.batch_alter_table('standing_grant', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_standing_grant_person_runbook'), ['person', 'runbook'], unique=False)

    op.create_table('delegation',
    sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
    sa.Column('delegator', sa.String(length=64), nullable=False),
    sa.Column('delegate', sa.String(length=64), nullable=False),
    sa.Column('area', sa.String(length=64), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.Column('ends_at', sa.BigInteger(), nullable=False),
    sa.Column('revoked_at', sa.BigInteger(), nullable=True),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_delegation'))
    )
    with op.batch_alter_table('delegation', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_delegation_delegate_ends_at'), ['delegate', 'ends_at'], unique=False)

    op.create_table('output',
    sa.Column('entry', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), autoincrement=False, nullable=False),
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('step_number', sa.Integer(), nullable=False),
    sa.Column('salt', sa.String(length=32), nullable=True),
    sa.Column('text', sa.Text(), nullable=True),
    sa.ForeignKeyConstraint(['entry'], ['entry.seq'], name=op.f('fk_output_entry')),
    sa.PrimaryKeyConstraint('entry', name=op.f('pk_output'))
    )
    with op.batch_alter_table('output', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_output_run_step_number'), ['run', 'step_number'], unique=False)

    op.create_table('run',
    sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
    sa.Column('version', sa.Integer(), nullable=False),
    sa.Column('state', sa.String(length=16), nullable=False),
    sa.Column('runbook', sa.String(length=80), nullable=False),
    sa.Column('kind', sa.String(length=8), nullable=False),
    sa.Column('field_values', sa.Text(), nullable=False),
    sa.Column('request', sa.Text(), nullable=False),
    sa.Column('host', sa.String(length=64), nullable=False),
    sa.Column('area', sa.String(length=1000), nullable=False),
    sa.Column('requested_by', sa.String(length=64), nullable=False),
    sa.Column('origin', sa.Text(), nullable=False),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.Column('requested_at', sa.BigInteger(), nullable=False),
    sa.Column('expires_at', sa.BigInteger(), nullable=True),
    sa.Column('started_at', sa.BigInteger(), nullable=True),
    sa.Column('ended_at', sa.BigInteger(), nullable=True),
    sa.Column('plan', sa.Text(), nullable=True),
    sa.Column('digest', sa.String(length=64), nullable=False),
    sa.Column('required_approvals', sa.Integer(), nullable=False),
    sa.Column('approver_groups', sa.Text(), nullable=False),
    sa.Column('policy_notes', sa.Text(), nullable=False),
    sa.Column('requirements', sa.Text(), nullable=False),
    sa.Column('pending_since', sa.BigInteger(), nullable=True),
    sa.Column('reminded_at', sa.BigInteger(), nullable=True),
    sa.Column('escalated_at', sa.BigInteger(), nullable=True),
    sa.Column('undo_of', sa.Integer(), nullable=True),
    sa.Column('parent', sa.Integer(), nullable=True),
    sa.Column('hosts', sa.Text(), nullable=False),
    sa.Column('timing', sa.Text(), nullable=True),
    sa.Column('editors', sa.Text(), nullable=False),
    sa.Column('proposal_for', sa.Integer(), nullable=True),
    sa.Column('grant_id', sa.Integer(), nullable=True),
    sa.Column('guard_override', sa.String(length=400), nullable=False),
    sa.Column('ticket', sa.String(length=64), nullable=False),
    sa.Column('replan_of', sa.Integer(), nullable=True),
    sa.Column('summary', sa.Text(), nullable=False),
    sa.Column('refused_by', sa.String(length=16), nullable=True),
    sa.Column('waiting', sa.Text(), nullable=True),
    sa.Column('fan_out_role', sa.Integer(), nullable=False),
    sa.Column('needs_attention', sa.Boolean(), nullable=False),
    sa.ForeignKeyConstraint(['proposal_for'], ['run.id'], name=op.f('fk_run_proposal_for')),
    sa.ForeignKeyConstraint(['replan_of'], ['run.id'], name=op.f('fk_run_replan_of')),
    sa.ForeignKeyConstraint(['grant_id'], ['standing_grant.id'], name=op.f('fk_run_grant_id')),
    sa.ForeignKeyConstraint(['parent'], ['run.id'], name=op.f('fk_run_parent')),
    sa.ForeignKeyConstraint(['undo_of'], ['run.id'], name=op.f('fk_run_undo_of')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_run')),
    sqlite_autoincrement=True
    )
    with op.batch_alter_table('run', schema=None) as batch_op:
        batch_op.create_index('ix_run_area', ['area', 'id', 'fan_out_role', 'requested_at', 'state', 'needs_attention', 'host'], unique=False)
        batch_op.create_index('ix_run_host', ['host', 'id', 'fan_out_role', 'requested_at', 'state', 'needs_attention', 'runbook', 'requested_by', 'area'], unique=False)
        batch_op.create_index('ix_run_person', ['requested_by', 'id', 'fan_out_role', 'requested_at', 'state', 'needs_attention', 'runbook', 'area', 'host'], unique=False)
        batch_op.create_index('ix_run_state', ['state', 'id', 'fan_out_role', 'requested_at', 'needs_attention', 'host'], unique=False)
        batch_op.create_index('ix_run_runbook', ['runbook', 'id', 'fan_out_role', 'requested_at', 'state', 'needs_attention', 'area', 'host'], unique=False)
        batch_op.create_index('ix_run_edited', ['id'], unique=False, sqlite_where=sa.text("editors != '[]'"), postgresql_where=sa.text("editors != '[]'"))
        batch_op.create_index('ix_run_newest', ['id', 'fan_out_role', 'requested_at', 'state', 'needs_attention', 'host'], unique=False)
        batch_op.create_index(batch_op.f('ix_run_requested_by_runbook'), ['requested_by', 'runbook'], unique=False)
        batch_op.create_index(batch_op.f('ix_run_requested_at_id'), ['requested_at', 'id'], unique=False)
        batch_op.create_index(batch_op.f('ix_run_ended_at_id'), ['ended_at', 'id'], unique=False)
        batch_op.create_index(batch_op.f('ix_run_parent_id'), ['parent', 'id'], unique=False, sqlite_where=sa.text('parent IS NOT NULL'), postgresql_where=sa.text('parent IS NOT NULL'))

    op.create_table('slack_home',
    sa.Column('user', sa.String(length=32), nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('opened_at', sa.BigInteger(), nullable=False),
    sa.Column('rendered_at', sa.BigInteger(), nullable=False),
    sa.Column('due_at', sa.BigInteger(), nullable=True),
    sa.Column('digest', sa.String(length=64), nullable=False),
    sa.PrimaryKeyConstraint('user', name=op.f('pk_slack_home'))
    )
    with op.batch_alter_table('slack_home', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_slack_home_due_at'), ['due_at'], unique=False)

    op.create_table('seen_request',
    sa.Column('key', sa.String(length=160), nullable=False),
    sa.Column('seen_at', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('key', name=op.f('pk_seen_request'))
    )
    with op.batch_alter_table('seen_request', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_seen_request_seen_at'), ['seen_at'], unique=False)

    op.create_table('session',
    sa.Column('token', sa.String(length=64), nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('started_at', sa.BigInteger(), nullable=False),
    sa.Column('last_seen_at', sa.BigInteger(), nullable=False),
    sa.Column('stepped_up_at', sa.BigInteger(), nullable=True),
    sa.Column('factor_digest', sa.String(length=32), nullable=False),
    sa.Column('challenge', sa.String(length=64), nullable=False),
    sa.Column('challenged_at', sa.BigInteger(), nullable=True),
    sa.Column('signed_in_by', sa.String(length=16), nullable=False),
    sa.Column('user_agent', sa.String(length=200), nullable=False),
    sa.Column('mac', sa.String(length=64), nullable=False),
    sa.PrimaryKeyConstraint('token', name=op.f('pk_session'))
    )
    op.create_table('second_factor',
    sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('kind', sa.String(length=8), nullable=False),
    sa.Column('digest', sa.String(length=32), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.Column('verified_at', sa.BigInteger(), nullable=True),
    sa.Column('last_counter', sa.BigInteger(), nullable=False),
    sa.Column('confirmed_by', sa.String(length=64), nullable=False),
    sa.Column('sealed', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_second_factor'))
    )
    with op.batch_alter_table('second_factor', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_second_factor_person'), ['person'], unique=False)

    op.create_table('secret',
    sa.Column('name', sa.String(length=32), nullable=False),
    sa.Column('content', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('pk_secret'))
    )
    op.create_table('break_glass',
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.Column('requested_at', sa.BigInteger(), nullable=False),
    sa.Column('activated_at', sa.BigInteger(), nullable=True),
    sa.Column('active_until', sa.BigInteger(), nullable=True),
    sa.Column('factor', sa.String(length=32), nullable=False),
    sa.Column('reviewed_at', sa.BigInteger(), nullable=True),
    sa.Column('reviewer', sa.String(length=64), nullable=False),
    sa.Column('review', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_break_glass_run')),
    sa.PrimaryKeyConstraint('run', name=op.f('pk_break_glass'))
    )
    with op.batch_alter_table('break_glass', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_break_glass_person_activated_at'), ['person', 'activated_at'], unique=False)

    op.create_table('sign_in_link',
    sa.Column('token', sa.String(length=64), nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('expires_at', sa.BigInteger(), nullable=False),
    sa.Column('used_at', sa.BigInteger(), nullable=True),
    sa.Column('mac', sa.String(length=64), nullable=False),
    sa.PrimaryKeyConstraint('token', name=op.f('pk_sign_in_link'))
    )
    op.create_table('schedule',
    sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('state', sa.String(length=16), nullable=False),
    sa.Column('owner', sa.String(length=64), nullable=False),
    sa.Column('timing', sa.Text(), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.Column('lapses_at', sa.BigInteger(), nullable=False),
    sa.Column('decided_until', sa.BigInteger(), nullable=False),
    sa.Column('due_at', sa.BigInteger(), nullable=True),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_schedule_run')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_schedule')),
    sa.UniqueConstraint('run', name=op.f('uq_schedule_run'))
    )
    with op.batch_alter_table('schedule', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_schedule_state_due_at'), ['state', 'due_at'], unique=False)

    op.create_table('fire',
    sa.Column('schedule', sa.Integer(), nullable=False),
    sa.Column('due_at', sa.BigInteger(), nullable=False),
    sa.Column('host', sa.String(length=64), nullable=False),
    sa.Column('outcome', sa.String(length=16), nullable=False),
    sa.Column('starts_at', sa.BigInteger(), nullable=False),
    sa.Column('recorded_at', sa.BigInteger(), nullable=False),
    sa.Column('run', sa.Integer(), nullable=True),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_fire_run')),
    sa.ForeignKeyConstraint(['schedule'], ['schedule.id'], name=op.f('fk_fire_schedule')),
    sa.PrimaryKeyConstraint('schedule', 'due_at', 'host', name=op.f('pk_fire'))
    )
    with op.batch_alter_table('fire', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_fire_outcome_starts_at'), ['outcome', 'starts_at'], unique=False)
        batch_op.create_index(batch_op.f('ix_fire_run'), ['run'], unique=False)

    op.create_table('search_word',
    sa.Column('word', sa.String(length=64), nullable=False),
    sa.Column('run', sa.Integer(), autoincrement=False, nullable=False),
    sa.PrimaryKeyConstraint('word', 'run', name=op.f('pk_search_word')),
    sqlite_with_rowid=False
    )
    op.create_table('follow_up',
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('since', sa.BigInteger(), nullable=False),
    sa.Column('next_at', sa.BigInteger(), nullable=False),
    sa.Column('attempts', sa.Integer(), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_follow_up_run')),
    sa.PrimaryKeyConstraint('run', name=op.f('pk_follow_up'))
    )
    with op.batch_alter_table('follow_up', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_follow_up_next_at'), ['next_at'], unique=False)

    op.create_table('live_output',
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('step_number', sa.Integer(), nullable=False),
    sa.Column('received_at', sa.BigInteger(), nullable=False),
    sa.Column('total_lines', sa.BigInteger(), nullable=False),
    sa.Column('text', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_live_output_run')),
    sa.PrimaryKeyConstraint('run', 'step_number', name=op.f('pk_live_output'))
    )
    with op.batch_alter_table('live_output', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_live_output_run_received_at'), ['run', 'received_at'], unique=False)

    op.create_table('outbox',
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('revision', sa.BigInteger(), nullable=False),
    sa.Column('attempts', sa.Integer(), nullable=False),
    sa.Column('next_attempt_at', sa.BigInteger(), nullable=False),
    sa.Column('sender', sa.String(length=36), nullable=False),
    sa.Column('error', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_outbox_run')),
    sa.PrimaryKeyConstraint('run', name=op.f('pk_outbox'))
    )
    with op.batch_alter_table('outbox', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_outbox_revision'), ['revision'], unique=False)

    op.create_table('slack_message',
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('slot', sa.String(length=96), nullable=False),
    sa.Column('channel', sa.String(length=32), nullable=False),
    sa.Column('ts', sa.String(length=32), nullable=False),
    sa.Column('digest', sa.String(length=64), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_slack_message_run')),
    sa.PrimaryKeyConstraint('run', 'slot', name=op.f('pk_slack_message'))
    )
    with op.batch_alter_table('slack_message', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_slack_message_ts'), ['ts'], unique=False)

    op.create_table('step',
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('step_number', sa.Integer(), nullable=False),
    sa.Column('state', sa.String(length=16), nullable=False),
    sa.Column('sent_at', sa.BigInteger(), nullable=False),
    sa.Column('ended_at', sa.BigInteger(), nullable=True),
    sa.Column('exit_status', sa.Integer(), nullable=True),
    sa.Column('error', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_step_run')),
    sa.PrimaryKeyConstraint('run', 'step_number', name=op.f('pk_step'))
    )
    op.create_table('grant_use',
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('grant_id', sa.Integer(), nullable=False),
    sa.Column('used_at', sa.BigInteger(), nullable=False),
    sa.ForeignKeyConstraint(['grant_id'], ['standing_grant.id'], name=op.f('fk_grant_use_grant_id')),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_grant_use_run')),
    sa.PrimaryKeyConstraint('run', name=op.f('pk_grant_use'))
    )
    with op.batch_alter_table('grant_use', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_grant_use_grant_id_used_at'), ['grant_id', 'used_at'], unique=False)

    op.create_table('agent',
    sa.Column('name', sa.String(length=40), nullable=False),
    sa.Column('owner', sa.String(length=64), nullable=False),
    sa.Column('purpose', sa.String(length=200), nullable=False),
    sa.Column('added_by', sa.String(length=64), nullable=False),
    sa.Column('added_at', sa.BigInteger(), nullable=False),
    sa.Column('ends_at', sa.BigInteger(), nullable=False),
    sa.Column('confirmed_by', sa.String(length=64), nullable=True),
    sa.Column('confirmed_at', sa.BigInteger(), nullable=True),
    sa.Column('ended_at', sa.BigInteger(), nullable=True),
    sa.Column('paused_at', sa.BigInteger(), nullable=True),
    sa.Column('paused_by', sa.String(length=64), nullable=True),
    sa.Column('pause_reason', sa.Text(), nullable=True),
    sa.Column('resumed_at', sa.BigInteger(), nullable=True),
    sa.Column('mac', sa.String(length=64), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('pk_agent'))
    )
    op.create_table('api_token',
    sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
    sa.Column('prefix', sa.String(length=16), nullable=False),
    sa.Column('hash', sa.String(length=64), nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('scopes', sa.String(length=64), nullable=False),
    sa.Column('name', sa.String(length=64), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.Column('expires_at', sa.BigInteger(), nullable=False),
    sa.Column('revoked_at', sa.BigInteger(), nullable=True),
    sa.Column('last_used_at', sa.BigInteger(), nullable=True),
    sa.Column('behalf', sa.String(length=64), nullable=True),
    sa.Column('confirmed_at', sa.BigInteger(), nullable=True),
    sa.Column('mac', sa.String(length=64), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_api_token')),
    sa.UniqueConstraint('prefix', name=op.f('uq_api_token_prefix'))
    )
    with op.batch_alter_table('api_token', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_api_token_person'), ['person'], unique=False)

    op.create_table('stored_response',
    sa.Column('key', sa.String(length=64), nullable=False),
    sa.Column('request_digest', sa.String(length=64), nullable=False),
    sa.Column('claimed_at', sa.BigInteger(), nullable=False),
    sa.Column('response', sa.Text(), nullable=True),
    sa.Column('first_entry', sa.BigInteger(), nullable=True),
    sa.PrimaryKeyConstraint('key', name=op.f('pk_stored_response'))
    )
    with op.batch_alter_table('stored_response', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_stored_response_claimed_at'), ['claimed_at'], unique=False)

    op.create_table('host_contact',
    sa.Column('host', sa.String(length=64), nullable=False),
    sa.Column('tried_at', sa.BigInteger(), nullable=False),
    sa.Column('answered_at', sa.BigInteger(), nullable=True),
    sa.Column('since', sa.BigInteger(), nullable=False),
    sa.Column('kind', sa.String(length=16), nullable=False),
    sa.Column('error', sa.Text(), nullable=False),
    sa.Column('failed_at', sa.BigInteger(), nullable=True),
    sa.PrimaryKeyConstraint('host', name=op.f('pk_host_contact'))
    )
    op.create_table('saved_view',
    sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('name', sa.String(length=64), nullable=False),
    sa.Column('query', sa.Text(), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_saved_view')),
    sa.UniqueConstraint('person', 'name', name=op.f('uq_saved_view_person_name'))
    )
    op.create_table('host_lock',
    sa.Column('host', sa.String(length=64), nullable=False),
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('since', sa.BigInteger(), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_host_lock_run')),
    sa.PrimaryKeyConstraint('host', name=op.f('pk_host_lock'))
    )
    op.create_table('inbound_event',
    sa.Column('source', sa.String(length=64), nullable=False),
    sa.Column('key', sa.String(length=64), nullable=False),
    sa.Column('received_at', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('source', 'key', name=op.f('pk_inbound_event'))
    )
    with op.batch_alter_table('inbound_event', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_inbound_event_received_at'), ['received_at'], unique=False)

    op.create_table('subscription',
    sa.Column('name', sa.String(length=64), nullable=False),
    sa.Column('seq', sa.BigInteger(), nullable=False),
    sa.Column('next_attempt_at', sa.BigInteger(), nullable=False),
    sa.Column('error', sa.String(length=300), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('pk_subscription'))
    )
    op.create_table('delivery',
    sa.Column('subscription', sa.String(length=64), nullable=False),
    sa.Column('seq', sa.BigInteger(), autoincrement=False, nullable=False),
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('kind', sa.String(length=32), nullable=False),
    sa.Column('occurred_at', sa.BigInteger(), nullable=False),
    sa.Column('attempts', sa.Integer(), nullable=False),
    sa.Column('next_attempt_at', sa.BigInteger(), nullable=False),
    sa.Column('failed_at', sa.BigInteger(), nullable=True),
    sa.Column('error', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('subscription', 'seq', name=op.f('pk_delivery'))
    )
    with op.batch_alter_table('delivery', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_delivery_failed_at'), ['failed_at'], unique=False)
        batch_op.create_index(batch_op.f('ix_delivery_subscription_run_seq'), ['subscription', 'run', 'seq'], unique=False)

    op.create_table('lease',
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('fence', sa.Integer(), nullable=False),
    sa.Column('worker', sa.String(length=96), nullable=False),
    sa.Column('expires_at', sa.BigInteger(), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_lease_run')),
    sa.PrimaryKeyConstraint('run', name=op.f('pk_lease'))
    )
    with op.batch_alter_table('lease', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_lease_expires_at'), ['expires_at'], unique=False)

    op.create_table('stop',
    sa.Column('what', sa.String(length=16), nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('stopped_at', sa.BigInteger(), nullable=False),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('what', name=op.f('pk_stop'))
    )
    op.create_table('ban',
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('banned_by', sa.String(length=64), nullable=False),
    sa.Column('banned_at', sa.BigInteger(), nullable=False),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('person', name=op.f('pk_ban'))
    )
    op.create_table('decision',
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('approves', sa.Boolean(), nullable=False),
    sa.Column('digest', sa.String(length=64), nullable=False),
    sa.Column('decided_at', sa.BigInteger(), nullable=False),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.Column('on_behalf_of', sa.String(length=64), nullable=False),
    sa.Column('factor', sa.String(length=32), nullable=False),
    sa.Column('signature', sa.Text(), nullable=False),
    sa.Column('start_at', sa.BigInteger(), nullable=True),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_decision_run')),
    sa.PrimaryKeyConstraint('run', 'person', name=op.f('pk_decision'))
    )
    op.create_table('tree_lock',
    sa.Column('tree', sa.String(length=64), nullable=False),
    sa.Column('version', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('tree', name=op.f('pk_tree_lock'))
    )
    op.create_table('event_reading',
    sa.Column('tree', sa.String(length=64), nullable=False),
    sa.Column('event', sa.String(length=64), nullable=False),
    sa.Column('state', sa.String(length=8), nullable=False),
    sa.Column('since_at', sa.BigInteger(), nullable=False),
    sa.Column('read_at', sa.BigInteger(), nullable=False),
    sa.Column('run', sa.Integer(), nullable=True),
    sa.Column('detail', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('tree', 'event', name=op.f('pk_event_reading'))
    )
    op.create_table('leg_claim',
    sa.Column('tree', sa.String(length=64), nullable=False),
    sa.Column('event', sa.String(length=64), nullable=False),
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('claimed_at', sa.BigInteger(), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_leg_claim_run')),
    sa.PrimaryKeyConstraint('tree', 'event', 'run', name=op.f('pk_leg_claim'))
    )
    op.create_table('drift_key',
    sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
    sa.Column('host', sa.String(length=64), nullable=False),
    sa.Column('name', sa.Text(), nullable=False),
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('state', sa.String(length=16), nullable=False),
    sa.Column('since_at', sa.BigInteger(), nullable=False),
    sa.Column('good_at', sa.BigInteger(), nullable=False),
    sa.Column('read_at', sa.BigInteger(), nullable=False),
    sa.Column('next_at', sa.BigInteger(), nullable=False),
    sa.Column('requested_at', sa.BigInteger(), nullable=True),
    sa.Column('digest', sa.String(length=64), nullable=False),
    sa.Column('value', sa.Text(), nullable=False),
    sa.Column('set_value', sa.Text(), nullable=False),
    sa.Column('adopted', sa.String(length=64), nullable=False),
    sa.Column('candidates', sa.Text(), nullable=False),
    sa.Column('announced_at', sa.BigInteger(), nullable=True),
    sa.Column('expected_until', sa.BigInteger(), nullable=True),
    sa.Column('expected_range', sa.String(length=80), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_drift_key_run')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_drift_key')),
    sa.UniqueConstraint('host', 'name', name=op.f('uq_drift_key_host_name'))
    )
    with op.batch_alter_table('drift_key', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_drift_key_next_at'), ['next_at'], unique=False)
        batch_op.create_index(batch_op.f('ix_drift_key_run'), ['run'], unique=False)
        batch_op.create_index(batch_op.f('ix_drift_key_state'), ['state'], unique=False)

    op.create_table('ordered_freeze',
    sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
    sa.Column('hosts', sa.Text(), nullable=False),
    sa.Column('areas', sa.Text(), nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.Column('begins_at', sa.BigInteger(), nullable=False),
    sa.Column('ends_at', sa.BigInteger(), nullable=False),
    sa.Column('ended_at', sa.BigInteger(), nullable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_ordered_freeze'))
    )
    with op.batch_alter_table('ordered_freeze', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_ordered_freeze_ends_at'), ['ends_at'], unique=False)

    op.create_table('oncall_reading',
    sa.Column('name', sa.String(length=64), nullable=False),
    sa.Column('source', sa.String(length=64), nullable=False),
    sa.Column('fetched_at', sa.BigInteger(), nullable=False),
    sa.Column('next_fetch_at', sa.BigInteger(), nullable=False),
    sa.Column('shifts', sa.Text(), nullable=False),
    sa.Column('error', sa.Text(), nullable=False),
    sa.Column('mac', sa.String(length=64), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('pk_oncall_reading'))
    )
    op.create_table('alert_answer',
    sa.Column('channel', sa.String(length=64), nullable=False),
    sa.Column('ts', sa.String(length=32), nullable=False),
    sa.Column('user', sa.String(length=32), nullable=False),
    sa.Column('thread', sa.String(length=32), nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('hosts', sa.Text(), nullable=False),
    sa.Column('subject', sa.String(length=32), nullable=False),
    sa.Column('plans', sa.Text(), nullable=False),
    sa.Column('runs', sa.Text(), nullable=False),
    sa.Column('claimed_at', sa.BigInteger(), nullable=False),
    sa.Column('due_at', sa.BigInteger(), nullable=False),
    sa.Column('attempts', sa.Integer(), nullable=False),
    sa.Column('posted', sa.String(length=32), nullable=True),
    sa.PrimaryKeyConstraint('channel', 'ts', 'user', name=op.f('pk_alert_answer'))
    )
    with op.batch_alter_table('alert_answer', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_alert_answer_claimed_at'), ['claimed_at'], unique=False)

    op.create_table('provisioned_user',
    sa.Column('user_id', sa.String(length=36), nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('user_name', sa.String(length=255), nullable=False),
    sa.Column('user_key', sa.String(length=255), nullable=True),
    sa.Column('external_id', sa.String(length=255), nullable=False),
    sa.Column('email', sa.String(length=254), nullable=False),
    sa.Column('name', sa.String(length=120), nullable=False),
    sa.Column('document', sa.Text(), nullable=False),
    sa.Column('is_active', sa.Boolean(), nullable=False),
    sa.Column('stay', sa.String(length=64), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.Column('changed_at', sa.BigInteger(), nullable=False),
    sa.Column('deleted_at', sa.BigInteger(), nullable=True),
    sa.Column('mac', sa.String(length=64), nullable=False),
    sa.PrimaryKeyConstraint('user_id', name=op.f('pk_provisioned_user')),
    sa.UniqueConstraint('person', name=op.f('uq_provisioned_user_person')),
    sa.UniqueConstraint('user_key', name=op.f('uq_provisioned_user_user_key'))
    )
    with op.batch_alter_table('provisioned_user', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_provisioned_user_created_at_user_id'), ['created_at', 'user_id'], unique=False)
        batch_op.create_index(batch_op.f('ix_provisioned_user_external_id'), ['external_id'], unique=False)

    op.create_table('provisioned_group',
    sa.Column('group_id', sa.String(length=36), nullable=False),
    sa.Column('name', sa.String(length=255), nullable=False),
    sa.Column('group_key', sa.String(length=255), nullable=False),
    sa.Column('external_id', sa.String(length=255), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.Column('changed_at', sa.BigInteger(), nullable=False),
    sa.Column('mac', sa.String(length=64), nullable=False),
    sa.PrimaryKeyConstraint('group_id', name=op.f('pk_provisioned_group')),
    sa.UniqueConstraint('group_key', name=op.f('uq_provisioned_group_group_key'))
    )
    with op.batch_alter_table('provisioned_group', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_provisioned_group_external_id'), ['external_id'], unique=False)

    op.create_table('provisioned_member',
    sa.Column('group_id', sa.String(length=36), nullable=False),
    sa.Column('user_id', sa.String(length=36), nullable=False),
    sa.Column('mac', sa.String(length=64), nullable=False),
    sa.PrimaryKeyConstraint('group_id', 'user_id', name=op.f('pk_provisioned_member'))
    )
    with op.batch_alter_table('provisioned_member', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_provisioned_member_user_id'), ['user_id'], unique=False)

    op.create_table('claimed_groups',
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('issuer', sa.String(length=255), nullable=False),
    sa.Column('group_names', sa.Text(), nullable=False),
    sa.Column('read_at', sa.BigInteger(), nullable=False),
    sa.Column('mac', sa.String(length=64), nullable=False),
    sa.PrimaryKeyConstraint('person', name=op.f('pk_claimed_groups'))
    )
    op.create_table('provisioning_revision',
    sa.Column('id', sa.Integer(), autoincrement=False, nullable=False),
    sa.Column('revision', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_provisioning_revision'))
    )
    _refuse_all_but_insert()
    _clean_runs_early()
    _create_procrastinate_tables()


def _clean_runs_early() -> None:
    """Have PostgreSQL clean the table of runs sooner than others.

    A run changes its state some times, and each leaves dead entries in the indexes by which open
    runs are found every second.
    """
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE run SET (autovacuum_vacuum_scale_factor = 0.05)")


def _create_procrastinate_tables() -> None:
    """Create the tables of the installed Procrastinate, for the distributed mode."""
    if op.get_bind().dialect.name == "sqlite":
        return
    from procrastinate.schema import SchemaManager

    # Several statements in one string, without parameters of ours.
    driver = op.get_bind().connection.driver_connection
    driver.execute(SchemaManager.get_schema())
    # Whether a hint for this run is queued already.
    op.execute(
        "CREATE INDEX keyturn_hint ON procrastinate_jobs ((args ->> 'run')) "
        "WHERE status = 'todo'"
    )
    # The next hint of a queue, and the last place of a person in it.
    op.execute(
        "CREATE INDEX keyturn_turn ON procrastinate_jobs (queue_name, priority) "
        "WHERE status = 'todo'"
    )
    op.execute(
        "CREATE INDEX keyturn_place ON procrastinate_jobs "
        "(queue_name, (args ->> 'who'), priority) WHERE status = 'todo'"
    )


def _refuse_all_but_insert() -> None:
    """Refuse changes to the change log, even by the application."""
    tables = ("entry", "tile")
    if op.get_bind().dialect.name == "sqlite":
        for table in tables:
            for verb in ("UPDATE", "DELETE"):
                op.execute(
                    f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                    "BEGIN SELECT RAISE(ABORT, 'the change log is append-only'); END"
                )
        return
    op.execute(
        "CREATE FUNCTION entry_is_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the change log is append-only'; END $$"
    )
    for table in tables:
        op.execute(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION entry_is_append_only()"
        )
    # Lock the log until the transaction ends, and return its newest row. A volatile function sees
    # what was committed while it waited for the lock.
    op.execute(
        "CREATE FUNCTION lock_log() RETURNS SETOF entry LANGUAGE plpgsql VOLATILE AS "
        "$$ BEGIN PERFORM pg_advisory_xact_lock(1801812340); "
        "RETURN QUERY SELECT * FROM entry ORDER BY seq DESC LIMIT 1; END $$"
    )


def downgrade() -> None:
    raise NotImplementedError("The first schema holds the change log and cannot be dropped")
