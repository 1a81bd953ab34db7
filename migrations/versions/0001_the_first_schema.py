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
    sa.Column('prev', sa.String(length=64), nullable=False),
    sa.Column('hash', sa.String(length=64), nullable=False),
    sa.Column('signature', sa.String(length=128), nullable=False),
    sa.PrimaryKeyConstraint('seq', name=op.f('pk_entry'))
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
    sa.Column('words', sa.String(length=80), nullable=False),
    sa.Column('hosts', sa.String(length=100), nullable=False),
    sa.Column('patterns', sa.Text(), nullable=False),
    sa.Column('per_hour', sa.Integer(), nullable=False),
    sa.Column('giver', sa.String(length=64), nullable=False),
    sa.Column('made', sa.BigInteger(), nullable=False),
    sa.Column('ends', sa.BigInteger(), nullable=False),
    sa.Column('revoked', sa.BigInteger(), nullable=True),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_standing_grant'))
    )
    with op.batch_alter_table('standing_grant', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_standing_grant_person_words'), ['person', 'words'], unique=False)

    op.create_table('delegation',
    sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
    sa.Column('delegator', sa.String(length=64), nullable=False),
    sa.Column('delegate', sa.String(length=64), nullable=False),
    sa.Column('area', sa.String(length=64), nullable=False),
    sa.Column('made', sa.BigInteger(), nullable=False),
    sa.Column('ends', sa.BigInteger(), nullable=False),
    sa.Column('revoked', sa.BigInteger(), nullable=True),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_delegation'))
    )
    with op.batch_alter_table('delegation', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_delegation_delegate_ends'), ['delegate', 'ends'], unique=False)

    op.create_table('output',
    sa.Column('entry', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), autoincrement=False, nullable=False),
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('n', sa.Integer(), nullable=False),
    sa.Column('salt', sa.String(length=32), nullable=True),
    sa.Column('text', sa.Text(), nullable=True),
    sa.ForeignKeyConstraint(['entry'], ['entry.seq'], name=op.f('fk_output_entry')),
    sa.PrimaryKeyConstraint('entry', name=op.f('pk_output'))
    )
    with op.batch_alter_table('output', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_output_run_n'), ['run', 'n'], unique=False)

    op.create_table('run',
    sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
    sa.Column('version', sa.Integer(), nullable=False),
    sa.Column('state', sa.String(length=16), nullable=False),
    sa.Column('words', sa.String(length=80), nullable=False),
    sa.Column('kind', sa.String(length=8), nullable=False),
    sa.Column('fields', sa.Text(), nullable=False),
    sa.Column('request', sa.Text(), nullable=False),
    sa.Column('host', sa.String(length=64), nullable=False),
    sa.Column('area', sa.String(length=1000), nullable=False),
    sa.Column('requested_by', sa.String(length=64), nullable=False),
    sa.Column('origin', sa.Text(), nullable=False),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.Column('asked', sa.BigInteger(), nullable=False),
    sa.Column('expires', sa.BigInteger(), nullable=True),
    sa.Column('started', sa.BigInteger(), nullable=True),
    sa.Column('ended', sa.BigInteger(), nullable=True),
    sa.Column('proposal', sa.Text(), nullable=True),
    sa.Column('digest', sa.String(length=64), nullable=False),
    sa.Column('needed', sa.Integer(), nullable=False),
    sa.Column('groups', sa.Text(), nullable=False),
    sa.Column('says', sa.Text(), nullable=False),
    sa.Column('terms', sa.Text(), nullable=False),
    sa.Column('shown', sa.BigInteger(), nullable=True),
    sa.Column('reminded', sa.BigInteger(), nullable=True),
    sa.Column('escalated', sa.BigInteger(), nullable=True),
    sa.Column('undo_of', sa.Integer(), nullable=True),
    sa.Column('parent', sa.Integer(), nullable=True),
    sa.Column('hosts', sa.Text(), nullable=False),
    sa.Column('timing', sa.Text(), nullable=True),
    sa.Column('editors', sa.Text(), nullable=False),
    sa.Column('counters', sa.Integer(), nullable=True),
    sa.Column('grant_id', sa.Integer(), nullable=True),
    sa.Column('summary', sa.Text(), nullable=False),
    sa.Column('place', sa.Integer(), nullable=False),
    sa.Column('unwell', sa.Boolean(), nullable=False),
    sa.ForeignKeyConstraint(['counters'], ['run.id'], name=op.f('fk_run_counters')),
    sa.ForeignKeyConstraint(['grant_id'], ['standing_grant.id'], name=op.f('fk_run_grant_id')),
    sa.ForeignKeyConstraint(['parent'], ['run.id'], name=op.f('fk_run_parent')),
    sa.ForeignKeyConstraint(['undo_of'], ['run.id'], name=op.f('fk_run_undo_of')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_run')),
    sqlite_autoincrement=True
    )
    with op.batch_alter_table('run', schema=None) as batch_op:
        batch_op.create_index('ix_run_area', ['area', 'id', 'place', 'asked', 'state', 'unwell', 'host'], unique=False)
        batch_op.create_index('ix_run_host', ['host', 'id', 'place', 'asked', 'state', 'unwell', 'words', 'requested_by', 'area'], unique=False)
        batch_op.create_index('ix_run_person', ['requested_by', 'id', 'place', 'asked', 'state', 'unwell', 'words', 'area', 'host'], unique=False)
        batch_op.create_index('ix_run_state', ['state', 'id', 'place', 'asked', 'unwell', 'host'], unique=False)
        batch_op.create_index('ix_run_words', ['words', 'id', 'place', 'asked', 'state', 'unwell', 'area', 'host'], unique=False)
        batch_op.create_index('ix_run_edited', ['id'], unique=False, sqlite_where=sa.text("editors != '[]'"), postgresql_where=sa.text("editors != '[]'"))
        batch_op.create_index('ix_run_newest', ['id', 'place', 'asked', 'state', 'unwell', 'host'], unique=False)
        batch_op.create_index(batch_op.f('ix_run_requested_by_words'), ['requested_by', 'words'], unique=False)
        batch_op.create_index(batch_op.f('ix_run_asked_id'), ['asked', 'id'], unique=False)
        batch_op.create_index(batch_op.f('ix_run_ended_id'), ['ended', 'id'], unique=False)
        batch_op.create_index(batch_op.f('ix_run_parent_id'), ['parent', 'id'], unique=False)

    op.create_table('home',
    sa.Column('user', sa.String(length=32), nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('opened', sa.BigInteger(), nullable=False),
    sa.Column('drawn', sa.BigInteger(), nullable=False),
    sa.Column('due', sa.BigInteger(), nullable=True),
    sa.Column('digest', sa.String(length=64), nullable=False),
    sa.PrimaryKeyConstraint('user', name=op.f('pk_home'))
    )
    with op.batch_alter_table('home', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_home_due'), ['due'], unique=False)

    op.create_table('seen',
    sa.Column('key', sa.String(length=160), nullable=False),
    sa.Column('at', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('key', name=op.f('pk_seen'))
    )
    with op.batch_alter_table('seen', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_seen_at'), ['at'], unique=False)

    op.create_table('session',
    sa.Column('token', sa.String(length=64), nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('began', sa.BigInteger(), nullable=False),
    sa.Column('last_seen', sa.BigInteger(), nullable=False),
    sa.Column('stepped_up', sa.BigInteger(), nullable=True),
    sa.Column('factor', sa.String(length=32), nullable=False),
    sa.Column('challenge', sa.String(length=64), nullable=False),
    sa.Column('challenged', sa.BigInteger(), nullable=True),
    sa.Column('by', sa.String(length=16), nullable=False),
    sa.Column('agent', sa.String(length=200), nullable=False),
    sa.Column('stamp', sa.String(length=64), nullable=False),
    sa.PrimaryKeyConstraint('token', name=op.f('pk_session'))
    )
    op.create_table('factor',
    sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('kind', sa.String(length=8), nullable=False),
    sa.Column('digest', sa.String(length=32), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.Column('verified_at', sa.BigInteger(), nullable=True),
    sa.Column('used', sa.BigInteger(), nullable=False),
    sa.Column('confirmed_by', sa.String(length=64), nullable=False),
    sa.Column('sealed', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_factor'))
    )
    with op.batch_alter_table('factor', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_factor_person'), ['person'], unique=False)

    op.create_table('sealed',
    sa.Column('name', sa.String(length=32), nullable=False),
    sa.Column('content', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('pk_sealed'))
    )
    op.create_table('glass',
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
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_glass_run')),
    sa.PrimaryKeyConstraint('run', name=op.f('pk_glass'))
    )
    with op.batch_alter_table('glass', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_glass_person_activated_at'), ['person', 'activated_at'], unique=False)

    op.create_table('sign_in_link',
    sa.Column('token', sa.String(length=64), nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('expires', sa.BigInteger(), nullable=False),
    sa.Column('used', sa.BigInteger(), nullable=True),
    sa.Column('stamp', sa.String(length=64), nullable=False),
    sa.PrimaryKeyConstraint('token', name=op.f('pk_sign_in_link'))
    )
    op.create_table('schedule',
    sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('state', sa.String(length=16), nullable=False),
    sa.Column('owner', sa.String(length=64), nullable=False),
    sa.Column('timing', sa.Text(), nullable=False),
    sa.Column('began', sa.BigInteger(), nullable=False),
    sa.Column('lapses', sa.BigInteger(), nullable=False),
    sa.Column('decided', sa.BigInteger(), nullable=False),
    sa.Column('due', sa.BigInteger(), nullable=True),
    sa.Column('why', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_schedule_run')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_schedule')),
    sa.UniqueConstraint('run', name=op.f('uq_schedule_run'))
    )
    with op.batch_alter_table('schedule', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_schedule_state_due'), ['state', 'due'], unique=False)

    op.create_table('fire',
    sa.Column('schedule', sa.Integer(), nullable=False),
    sa.Column('due', sa.BigInteger(), nullable=False),
    sa.Column('host', sa.String(length=64), nullable=False),
    sa.Column('outcome', sa.String(length=16), nullable=False),
    sa.Column('start', sa.BigInteger(), nullable=False),
    sa.Column('at', sa.BigInteger(), nullable=False),
    sa.Column('run', sa.Integer(), nullable=True),
    sa.Column('why', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_fire_run')),
    sa.ForeignKeyConstraint(['schedule'], ['schedule.id'], name=op.f('fk_fire_schedule')),
    sa.PrimaryKeyConstraint('schedule', 'due', 'host', name=op.f('pk_fire'))
    )
    with op.batch_alter_table('fire', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_fire_outcome_start'), ['outcome', 'start'], unique=False)
        batch_op.create_index(batch_op.f('ix_fire_run'), ['run'], unique=False)

    op.create_table('word',
    sa.Column('word', sa.String(length=64), nullable=False),
    sa.Column('run', sa.Integer(), autoincrement=False, nullable=False),
    sa.PrimaryKeyConstraint('word', 'run', name=op.f('pk_word')),
    sqlite_with_rowid=False
    )
    op.create_table('vigil',
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('since', sa.BigInteger(), nullable=False),
    sa.Column('next', sa.BigInteger(), nullable=False),
    sa.Column('looks', sa.Integer(), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_vigil_run')),
    sa.PrimaryKeyConstraint('run', name=op.f('pk_vigil'))
    )
    with op.batch_alter_table('vigil', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_vigil_next'), ['next'], unique=False)

    op.create_table('heard',
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('n', sa.Integer(), nullable=False),
    sa.Column('at', sa.BigInteger(), nullable=False),
    sa.Column('lines', sa.BigInteger(), nullable=False),
    sa.Column('text', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_heard_run')),
    sa.PrimaryKeyConstraint('run', 'n', name=op.f('pk_heard'))
    )
    with op.batch_alter_table('heard', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_heard_run_at'), ['run', 'at'], unique=False)

    op.create_table('news',
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('revision', sa.Integer(), nullable=False),
    sa.Column('told', sa.Integer(), nullable=False),
    sa.Column('tries', sa.Integer(), nullable=False),
    sa.Column('not_before', sa.BigInteger(), nullable=False),
    sa.Column('sender', sa.String(length=36), nullable=False),
    sa.Column('trouble', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_news_run')),
    sa.PrimaryKeyConstraint('run', name=op.f('pk_news'))
    )
    op.create_table('notice',
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('slot', sa.String(length=96), nullable=False),
    sa.Column('channel', sa.String(length=32), nullable=False),
    sa.Column('ts', sa.String(length=32), nullable=False),
    sa.Column('digest', sa.String(length=64), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_notice_run')),
    sa.PrimaryKeyConstraint('run', 'slot', name=op.f('pk_notice'))
    )
    op.create_table('step',
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('n', sa.Integer(), nullable=False),
    sa.Column('state', sa.String(length=16), nullable=False),
    sa.Column('sent', sa.BigInteger(), nullable=False),
    sa.Column('ended', sa.BigInteger(), nullable=True),
    sa.Column('status', sa.Integer(), nullable=True),
    sa.Column('trouble', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_step_run')),
    sa.PrimaryKeyConstraint('run', 'n', name=op.f('pk_step'))
    )
    op.create_table('grant_use',
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('grant_id', sa.Integer(), nullable=False),
    sa.Column('at', sa.BigInteger(), nullable=False),
    sa.ForeignKeyConstraint(['grant_id'], ['standing_grant.id'], name=op.f('fk_grant_use_grant_id')),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_grant_use_run')),
    sa.PrimaryKeyConstraint('run', name=op.f('pk_grant_use'))
    )
    with op.batch_alter_table('grant_use', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_grant_use_grant_id_at'), ['grant_id', 'at'], unique=False)

    op.create_table('api_token',
    sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
    sa.Column('prefix', sa.String(length=16), nullable=False),
    sa.Column('hash', sa.String(length=64), nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('scopes', sa.String(length=64), nullable=False),
    sa.Column('name', sa.String(length=64), nullable=False),
    sa.Column('made', sa.BigInteger(), nullable=False),
    sa.Column('expires', sa.BigInteger(), nullable=False),
    sa.Column('revoked', sa.BigInteger(), nullable=True),
    sa.Column('used', sa.BigInteger(), nullable=True),
    sa.Column('stamp', sa.String(length=64), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_api_token')),
    sa.UniqueConstraint('prefix', name=op.f('uq_api_token_prefix'))
    )
    with op.batch_alter_table('api_token', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_api_token_person'), ['person'], unique=False)

    op.create_table('answered',
    sa.Column('key', sa.String(length=64), nullable=False),
    sa.Column('request', sa.String(length=64), nullable=False),
    sa.Column('at', sa.BigInteger(), nullable=False),
    sa.Column('answer', sa.Text(), nullable=True),
    sa.Column('entry', sa.BigInteger(), nullable=True),
    sa.PrimaryKeyConstraint('key', name=op.f('pk_answered'))
    )
    with op.batch_alter_table('answered', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_answered_at'), ['at'], unique=False)

    op.create_table('contact',
    sa.Column('host', sa.String(length=64), nullable=False),
    sa.Column('tried_at', sa.BigInteger(), nullable=False),
    sa.Column('answered_at', sa.BigInteger(), nullable=True),
    sa.Column('since', sa.BigInteger(), nullable=False),
    sa.Column('kind', sa.String(length=16), nullable=False),
    sa.Column('error', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('host', name=op.f('pk_contact'))
    )
    op.create_table('view',
    sa.Column('id', sa.Integer(), autoincrement=True, nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('name', sa.String(length=64), nullable=False),
    sa.Column('query', sa.Text(), nullable=False),
    sa.Column('made', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_view')),
    sa.UniqueConstraint('person', 'name', name=op.f('uq_view_person_name'))
    )
    op.create_table('target_lock',
    sa.Column('target', sa.String(length=64), nullable=False),
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('since', sa.BigInteger(), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_target_lock_run')),
    sa.PrimaryKeyConstraint('target', name=op.f('pk_target_lock'))
    )
    op.create_table('outside_event',
    sa.Column('source', sa.String(length=64), nullable=False),
    sa.Column('key', sa.String(length=64), nullable=False),
    sa.Column('at', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('source', 'key', name=op.f('pk_outside_event'))
    )
    with op.batch_alter_table('outside_event', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_outside_event_at'), ['at'], unique=False)

    op.create_table('subscription',
    sa.Column('name', sa.String(length=64), nullable=False),
    sa.Column('seq', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('pk_subscription'))
    )
    op.create_table('delivery',
    sa.Column('subscription', sa.String(length=64), nullable=False),
    sa.Column('seq', sa.BigInteger(), autoincrement=False, nullable=False),
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('kind', sa.String(length=32), nullable=False),
    sa.Column('at', sa.BigInteger(), nullable=False),
    sa.Column('tries', sa.Integer(), nullable=False),
    sa.Column('not_before', sa.BigInteger(), nullable=False),
    sa.Column('dead', sa.BigInteger(), nullable=True),
    sa.Column('trouble', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('subscription', 'seq', name=op.f('pk_delivery'))
    )
    with op.batch_alter_table('delivery', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_delivery_dead'), ['dead'], unique=False)
        batch_op.create_index(batch_op.f('ix_delivery_subscription_run_seq'), ['subscription', 'run', 'seq'], unique=False)

    op.create_table('lease',
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('fence', sa.Integer(), nullable=False),
    sa.Column('worker', sa.String(length=96), nullable=False),
    sa.Column('until', sa.BigInteger(), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_lease_run')),
    sa.PrimaryKeyConstraint('run', name=op.f('pk_lease'))
    )
    with op.batch_alter_table('lease', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_lease_until'), ['until'], unique=False)

    op.create_table('stop',
    sa.Column('what', sa.String(length=16), nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('at', sa.BigInteger(), nullable=False),
    sa.Column('why', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('what', name=op.f('pk_stop'))
    )
    op.create_table('ban',
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('by', sa.String(length=64), nullable=False),
    sa.Column('at', sa.BigInteger(), nullable=False),
    sa.Column('why', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('person', name=op.f('pk_ban'))
    )
    op.create_table('vote',
    sa.Column('run', sa.Integer(), nullable=False),
    sa.Column('person', sa.String(length=64), nullable=False),
    sa.Column('approves', sa.Boolean(), nullable=False),
    sa.Column('digest', sa.String(length=64), nullable=False),
    sa.Column('decided_at', sa.BigInteger(), nullable=False),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.Column('on_behalf_of', sa.String(length=64), nullable=False),
    sa.Column('factor', sa.String(length=32), nullable=False),
    sa.ForeignKeyConstraint(['run'], ['run.id'], name=op.f('fk_vote_run')),
    sa.PrimaryKeyConstraint('run', 'person', name=op.f('pk_vote'))
    )
    _refuse_all_but_insert()
    _tables_of_the_engine()


def _tables_of_the_engine() -> None:
    """Let the installed Procrastinate lay out its own tables, for the distributed mode."""
    if op.get_bind().dialect.name == "sqlite":
        return
    from procrastinate.schema import SchemaManager

    # As its author wrote it, several statements in one: nothing in it is a parameter of ours.
    driver = op.get_bind().connection.driver_connection
    driver.execute(SchemaManager.get_schema())
    # Whether a hint for this run waits already.
    op.execute(
        "CREATE INDEX keyturn_hint ON procrastinate_jobs ((args ->> 'run')) "
        "WHERE status = 'todo'"
    )
    # Whose turn it is in a queue, and which place a person has last.
    op.execute(
        "CREATE INDEX keyturn_turn ON procrastinate_jobs (queue_name, priority) "
        "WHERE status = 'todo'"
    )
    op.execute(
        "CREATE INDEX keyturn_place ON procrastinate_jobs "
        "(queue_name, (args ->> 'who'), priority) WHERE status = 'todo'"
    )


def _refuse_all_but_insert() -> None:
    """Keep even the application from changing what the change log holds."""
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER entry_no_{verb.lower()} BEFORE {verb} ON entry "
                "BEGIN SELECT RAISE(ABORT, 'the change log is append-only'); END"
            )
        return
    op.execute(
        "CREATE FUNCTION entry_is_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the change log is append-only'; END $$"
    )
    op.execute(
        "CREATE TRIGGER entry_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON entry "
        "FOR EACH STATEMENT EXECUTE FUNCTION entry_is_append_only()"
    )
    # Where the log ends, for who appends: nobody else does before their transaction ends. What a
    # volatile function asks after it has the lock sees what was committed meanwhile.
    op.execute(
        "CREATE FUNCTION log_head() RETURNS SETOF entry LANGUAGE plpgsql VOLATILE AS "
        "$$ BEGIN PERFORM pg_advisory_xact_lock(1801812340); RETURN QUERY SELECT entry.* "
        "FROM entry ORDER BY entry.seq DESC LIMIT 1; END $$"
    )


def downgrade() -> None:
    raise NotImplementedError("the first schema holds the change log: it is not dropped by a tool")
