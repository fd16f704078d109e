# A worker for taskq in Ruby (pg) with many tasks at once: one heartbeat for all of them, returns in batches that bring
# the next tasks along.
#
#     PGHOST=... PGDATABASE=... ruby worker.rb [ACTION,...] [TASKS]
#
# Two connections, however many tasks: one sleeps until there is work, the other extends, returns and takes the next.
# SIGTERM or SIGINT: it takes no more, lets the tasks in hand finish within the grace, and gives back what does not. A
# task that was cancelled or taken over is dropped as soon as a heartbeat hears of it.

require "digest"
require "json"
require "pg"
require "socket"

TASKS = Integer(ARGV[1] || 10) # at once
ACTOR = "#{Socket.gethostname}:#{Process.pid}"
LEASE = Float(ENV.fetch("TASKQ_LEASE", 60)) # seconds that a death of this process goes unnoticed
GRACE = Float(ENV.fetch("TASKQ_GRACE", 20)) # seconds to finish after SIGTERM; less than the supervisor grants
WAIT = 10 # seconds of one waiting call

def log(text) = warn("#{Time.now.strftime('%T.%L')} #{text}")

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

# The task can never succeed: no further try makes sense.
class Rejected < StandardError; end

# The handler has stopped because it was asked to.
class Interrupted < StandardError; end

# What asks a handler to stop.
class Request
  def initialize
    @mutex, @changed, @asked = Mutex.new, ConditionVariable.new, false
  end

  def ask = @mutex.synchronize { @asked = true; @changed.broadcast }

  # Sleeps so long, or until it is asked.
  def wait(seconds)
    ends = now + seconds
    @mutex.synchronize do
      @changed.wait(@mutex, ends - now) until @asked || now >= ends
      raise Interrupted if @asked
    end
  end
end

# A handler gets the body, and what may ask it to stop, which it must heed. Its result is kept with the task.
def checksum(body, interrupt)
  text = text_of(body)
  raise body["fail"] if body["fail"] # anything else may work the next time

  interrupt.wait(body.fetch("seconds", 0))
  { sha256: Digest::SHA256.hexdigest(text), head: text[0, 10], client: "ruby" }
end

def words(body, _interrupt) = { words: text_of(body).split.size, client: "ruby" }

def text_of(body)
  raise Rejected, "the body lacks a text" unless body.is_a?(Hash) && body["text"].is_a?(String)

  body["text"]
end

# What the worker can do: the action of a task, and the handler that performs it.
HANDLERS = { "checksum" => method(:checksum), "words" => method(:words) }.freeze

# The actions of this process: those of the argument, or all.
ACTIONS = ARGV[0]&.split(",") || HANDLERS.keys

# The work itself.
def perform(task, interrupt) = HANDLERS.fetch(task.action).call(read(task.body), interrupt)

def read(body)
  JSON.parse(body)
rescue JSON::ParserError, TypeError => error
  raise Rejected, "the body cannot be read: #{error.message}"
end

Task = Struct.new(:id, :token, :action, :body, :tries)

# A task in hand, until it is returned. Its outcome is an element of what return_and_own_tasks takes.
Performance = Struct.new(:task, :interrupt, :lost, :outcome)

# One connection, opened again as often as it takes.
class Link
  # The end of the connection, a server that starts or stops, too many connections; and a standby, since a failover, or
  # not yet promoted: another connection may find the primary.
  ELSEWHERE = /\A(08|57P|53300|25006)/

  attr_writer :give_up_at

  def initialize
    @give_up_at = Float::INFINITY
  end

  # The rows of a query in a transaction of its own. A query may run twice if its answer gets lost.
  def call(query, *arguments)
    delay = 0.1
    begin
      @connection ||= connect
      @connection.exec_params(query, arguments).values
    rescue PG::Error => error
      sqlstate = Link.sqlstate(error)
      raise if (sqlstate && sqlstate !~ ELSEWHERE) || now > @give_up_at

      log("no connection, again in about #{delay.round(1)} s: #{error.message.strip}")
      @connection&.close unless @connection&.finished?
      @connection = nil
      sleep(delay * rand(0.5..1.5))
      delay = [delay * 2, 10].min
      retry
    end
  end

  # Cancels the call that sleeps: it is granted nothing then, or the grant was committed before and is performed.
  def cancel
    connection = @connection
    connection.cancel unless connection.nil? || connection.finished?
  rescue PG::Error
    nil # it has just gone
  end

  def self.sqlstate(error) = error.result&.error_field(PG::Result::PG_DIAG_SQLSTATE)

  private

  # PGHOST and the like say where. Plain statements, so that PgBouncer may stand in between.
  def connect
    # The last: milliseconds until a vanished server is noticed.
    PG.connect(application_name: "taskq worker", connect_timeout: 5, keepalives_idle: 30, tcp_user_timeout: 30_000)
  end
end

# The tasks in hand. What happens is told to one thread, that of `run`, which alone touches them.
class Pool
  def initialize
    @waiter, @link = Link.new, Link.new
    @hand, @events = [], Queue.new
    @stopping = @owning = @late = @beating = false
  end

  def run
    heed_signals
    every(LEASE / 3) { @events << [:beat] unless @beating.tap { @beating = true } } # one at a time
    until @stopping && !@owning && @hand.empty?
      ask_for_more
      event, *about = @events.pop
      send(event, *about)
    end
    log("stopped")
  end

  private

  # What may be done in a signal's handler is little: it wakes a thread, and that does the rest, whatever the others do.
  def heed_signals
    signals = Queue.new
    %w[TERM INT].each { |name| trap(name) { signals << name } }
    Thread.new do
      signals.pop
      @waiter.give_up_at = @link.give_up_at = now + GRACE + 5
      @events << [:stop]
      every(GRACE) { @events << [:grace_over] }
      # Now or just after this.
      every(0.2, at_once: true) { @waiter.cancel if @waiting }
    end
  end

  def every(seconds, at_once: false)
    Thread.new do
      sleep(seconds) unless at_once
      loop { yield; sleep(seconds) }
    end
  end

  # Sleeps in the server until there are some.
  def ask_for_more
    room = TASKS - @hand.size
    return if @stopping || @owning || room.zero?

    @owning = true
    Thread.new do
      @events << [:granted, own(room)]
    rescue StandardError => error
      @events << [:failed, error]
    end
  end

  def own(number)
    @waiting = true
    rows = @waiter.call(<<~SQL, ACTOR, number, array(ACTIONS), LEASE, WAIT)
      SELECT task_id, token, action, body, num_tries
        FROM taskq.own_tasks($1, $2, $3::text[], $4::float8 * interval '1 second', wait => $5::float8 * interval '1 second')
    SQL
    rows.map { |row| Task.new(*row) }
  rescue PG::QueryCanceled
    [] # the wait was ended; nothing was granted
  ensure
    @waiting = false
  end

  # --- events

  def granted(tasks)
    @owning = false
    tasks.each { |task| start(task) }
    grace_over if @late
  end

  def failed(error) = raise(error)

  def stop
    @stopping = true
  end

  def grace_over
    @late = true
    @hand.each { |performance| performance.interrupt.ask }
  end

  # One call for all tasks in hand.
  def beat
    @beating = false
    held = @hand.reject(&:lost)
    return if held.empty?

    rows = @link.call(<<~SQL, ACTOR, array(held.map { |p| p.task.id }), array(held.map { |p| p.task.token }), LEASE)
      SELECT owned FROM taskq.extend_tasks_ownership($1, $2::text[], $3::uuid[], $4::float8 * interval '1 second')
    SQL
    # A row for each pair, in the order of the arrays.
    held.zip(rows) do |performance, (owned)|
      next if owned == "t"

      log("#{performance.task.id}: lost")
      performance.lost = true
      performance.interrupt.ask
    end
  rescue PG::Error => error
    log("no heartbeat: #{error.message}")
  end

  # Whatever has ended goes back with one call, which brings others in its place.
  def ended
    done, @hand = @hand.partition(&:outcome)
    kept = done.reject(&:lost)
    give(kept).each { |task| start(task) } unless kept.empty?
  end

  # --- tasks

  def start(task)
    performance = Performance.new(task, Request.new, false, nil)
    @hand << performance
    Thread.new do
      outcome = work(task, performance.interrupt)
      performance.outcome = outcome.merge(task_id: task.id, token: task.token)
      @events << [:ended]
    end
  end

  # Performs a task; how it ended is returned with what ends at the same time.
  def work(task, interrupt)
    log("#{task.id}: try #{task.tries}")
    result = perform(task, interrupt)
    { status_code: "completed", result: checked(result) }
  rescue Interrupted
    # It has not failed: it uses up no try, and need not wait for the back-off.
    { status_code: "pending", status: "given back by a worker that stops", count_try: false }
  rescue Rejected => error
    { status_code: "aborted", status: printable(error.message) }
  rescue StandardError, ScriptError, SystemStackError => error
    # When it is tried again is the queue's business: the back-off of the task, of its action, or of all.
    { status_code: "pending", status: printable("#{error.class}: #{error.message}") }
  end

  # Returns tasks, and takes as many others, with one call; a bad token spoils only its own row.
  def give(performances)
    returns, number = JSON.generate(performances.map(&:outcome)), @stopping ? 0 : performances.size
    rows = @link.call(<<~SQL, ACTOR, returns, number, array(ACTIONS), LEASE)
      SELECT sqlstate, task_id, token, action, body, num_tries
        FROM taskq.return_and_own_tasks($1, $2::jsonb, $3, $4::text[], $5::float8 * interval '1 second')
    SQL
    refused, granted = rows.partition(&:first)
    # TQ001, TQ003: cancelled, deleted, taken over, or returned by us and only the answer was lost.
    refused.each { |sqlstate, id| log("#{id}: dropped, it is not ours any more (#{sqlstate})") }
    granted.map { |_, *task| Task.new(*task) }
  rescue PG::Error => error
    raise unless Link.sqlstate(error)&.start_with?("22")

    give_singly(performances, error)
  end

  # Finds out which result the server cannot store, one with a \u0000 for example. The next try would have no other.
  def give_singly(performances, error)
    return performances.flat_map { |performance| give([performance]) } if performances.size > 1

    performance = performances.first
    raise error unless performance.outcome[:result]

    log("#{performance.task.id}: its result cannot be stored: #{error.message}")
    status = printable("its result cannot be stored: #{error.message.strip}")
    performance.outcome = { status_code: "aborted", status: status, task_id: performance.task.id, token: performance.task.token }
    give([performance])
  end

  # The result, which must be JSON. One that is none must not end the worker: the task is rejected.
  def checked(result)
    JSON.generate(result)
    result
  rescue JSON::GeneratorError, JSON::NestingError, EncodingError => error
    raise Rejected, "its result is no JSON: #{error.message}"
  end

  # What a text of PostgreSQL can hold.
  def printable(text) = text.encode("UTF-8", invalid: :replace, undef: :replace).scrub.delete("\0")

  def array(texts) = PG::TextEncoder::Array.new.encode(texts)
end

unknown = ACTIONS - HANDLERS.keys
if unknown.any? || ACTIONS.empty?
  warn("unknown action #{unknown.join(', ')}: there are handlers for #{HANDLERS.keys.join(', ')}")
  exit(2)
end
Thread.abort_on_exception = true
Pool.new.run
